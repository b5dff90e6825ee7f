package main

import (
	"context"
	"net"
	"os"
	"path/filepath"
)

const (
	containerdSocket = "/run/containerd/containerd.sock"
	book             = "/var/lib/ipamd/book.db"
)

// What is disabled would touch the host (opt makes /opt/containerd, some
// snapshotters load modules), or only costs time. Both 1.x and 2.x read it.
const containerdConfig = `version = 2
disabled_plugins = [
  "io.containerd.cri.v1.images",
  "io.containerd.cri.v1.runtime",
  "io.containerd.grpc.v1.cri",
  "io.containerd.image-verifier.v1.bindir",
  "io.containerd.internal.v1.opt",
  "io.containerd.internal.v1.tracing",
  "io.containerd.nri.v1.nri",
  "io.containerd.snapshotter.v1.aufs",
  "io.containerd.snapshotter.v1.blockfile",
  "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.devmapper",
  "io.containerd.snapshotter.v1.erofs",
  "io.containerd.snapshotter.v1.zfs",
  "io.containerd.tracing.processor.v1.otlp",
]
[debug]
  level = "warn"
`

// A pool with five addresses, 10.8.64.2 to .6, so that the walk through it is
// short.
const ipamdConfig = `[bridge]
manage = true

[[pool]]
name = 'default'
prefix = '10.8.64.0/29'

[socket]
group = ''

[enforce]
mode = 'enforce'

[wake]
resumer = 'containerd'

[idle]
after = '10m'
`

// startContainerd starts containerd with a root, a state and a socket that
// only the demo sees.
func (s *story) startContainerd() {
	s.containerd = s.start("containerd", containerdConfig, nil, func() error {
		c, err := net.Dial("unix", containerdSocket)
		if err == nil {
			err = c.Close()
		}
		return err
	})
}

// startIPAMD starts ipamd and waits until it hands out addresses.
func (s *story) startIPAMD() {
	s.ipamd = s.start("ipamd", ipamdConfig, []string{"run"}, func() error {
		_, err := s.client.Ready(context.Background())
		return err
	})
}

func (s *story) start(name, config string, args []string, ready func() error) *daemon {
	path := filepath.Join(demoDir, name+".toml")
	s.must(os.WriteFile(path, []byte(config), 0o600))
	return got[*daemon](s)(start(name, append(args, "--config", path), ready))
}
