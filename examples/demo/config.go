package main

import (
	"context"
	"fmt"
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
// short to tell.
const ipamdConfig = `[bridge]
manage = true

[[pool]]
name = 'default'
prefix = '10.8.64.0/29'

[socket]
group = ''
`

func writeConfig(name, text string) (path string, err error) {
	path = filepath.Join(demoDir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		return "", fmt.Errorf("write the configuration: %w", err)
	}
	return path, nil
}

// startContainerd starts containerd with a root, a state and a socket that
// only the demo sees.
func (s *story) startContainerd(ctx context.Context) error {
	path, err := writeConfig("containerd.toml", containerdConfig)
	if err != nil {
		return err
	}
	s.containerd, err = start(ctx, "containerd", []string{"--config", path}, func(context.Context) error {
		c, err := net.Dial("unix", containerdSocket)
		if err == nil {
			err = c.Close()
		}
		return err
	})
	return err
}

// startIPAMD starts ipamd and waits until it hands out addresses.
func (s *story) startIPAMD(ctx context.Context) error {
	path, err := writeConfig("ipamd.toml", ipamdConfig)
	if err != nil {
		return err
	}
	s.ipamd, err = start(ctx, "ipamd", []string{"run", "--config", path}, func(ctx context.Context) error {
		_, err := s.ask.Ready(ctx)
		return err
	})
	return err
}
