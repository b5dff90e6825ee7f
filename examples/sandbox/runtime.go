package main

import (
	"context"
	"fmt"
	"time"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/namespaces"

	"github.com/ipamd/ipamd/client"
)

// The labels that ipamd looks for, as its configuration has them by default.
const (
	labelOwner   = "runtime.computer/entity-id"
	labelAddress = "runtime.computer/ip"
	labelLease   = "ipamd.dev/lease-id"
)

// patience bounds a verb, and once more the undoing of one that failed.
const patience = 30 * time.Second

// A Config says where everything is.
type Config struct {
	Containerd string // containerd's socket
	Namespace  string // containerd namespace of all sandboxes
	Socket     string // ipamd's socket
	Rootfs     string // what the sandboxes see as /
	Cgroup     string // parent of their cgroups
}

// A Runtime starts and removes sandboxes. It remembers nothing: containerd
// has the containers, ipamd the addresses.
type Runtime struct {
	cfg   Config
	ctrd  *containerd.Client
	ipamd *client.Client
}

// Open connects to containerd. ipamd is called when it is needed.
func Open(cfg Config) (*Runtime, error) {
	ctrd, err := containerd.New(cfg.Containerd, containerd.WithTimeout(patience))
	if err != nil {
		return nil, fmt.Errorf("open containerd at %s: %w", cfg.Containerd, err)
	}
	return &Runtime{cfg: cfg, ctrd: ctrd, ipamd: &client.Client{Socket: cfg.Socket}}, nil
}

// Close closes the connections.
func (r *Runtime) Close() {
	r.ipamd.CloseIdleConnections()
	_ = r.ctrd.Close()
}

// within names the containerd namespace and bounds what follows.
func (r *Runtime) within(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(namespaces.WithNamespace(ctx, r.cfg.Namespace), patience)
}
