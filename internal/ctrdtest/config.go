package ctrdtest

import "strings"

// What is disabled would touch the host (the opt plugin makes /opt/containerd,
// nri opens /var/run/nri, aufs and devmapper load modules), or only costs time
// at start.
const (
	configDebian = `version = 2
root = "DIR/root"
state = "DIR/state"
disabled_plugins = [
  "io.containerd.grpc.v1.cri",
  "io.containerd.internal.v1.opt",
  "io.containerd.internal.v1.tracing",
  "io.containerd.tracing.processor.v1.otlp",
  "io.containerd.snapshotter.v1.aufs",
  "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.devmapper",
  "io.containerd.snapshotter.v1.zfs",
]
[grpc]
  address = "DIR/c.sock"
[debug]
  level = "warn"
`
	configV2 = `version = 3
root = "DIR/root"
state = "DIR/state"
disabled_plugins = [
  "io.containerd.cri.v1.images",
  "io.containerd.cri.v1.runtime",
  "io.containerd.grpc.v1.cri",
  "io.containerd.internal.v1.opt",
  "io.containerd.internal.v1.tracing",
  "io.containerd.image-verifier.v1.bindir",
  "io.containerd.nri.v1.nri",
  "io.containerd.snapshotter.v1.blockfile",
  "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.devmapper",
  "io.containerd.snapshotter.v1.erofs",
  "io.containerd.snapshotter.v1.zfs",
]
[grpc]
  address = "DIR/c.sock"
[debug]
  level = "warn"
`
)

func (v Version) config(dir string) string {
	text := configDebian
	if v == V2 {
		text = configV2
	}
	return strings.ReplaceAll(text, "DIR", dir)
}
