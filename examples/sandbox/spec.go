package main

import (
	"context"
	"fmt"
	"path"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/containerd/v2/pkg/oci"
	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/ipamd/ipamd/api"
)

// create makes the container's record. The labels are what lets ipamd find
// out whose address this is when all it has is the runtime.
func (r *Runtime) create(ctx context.Context, name string, lease api.Lease, args []string) (containerd.Container, error) {
	if len(args) == 0 {
		args = []string{"sleep", "2147483647"}
	}
	c, err := r.ctrd.NewContainer(ctx, name,
		containerd.WithContainerLabels(map[string]string{
			labelOwner:   name,
			labelAddress: lease.Address,
			labelLease:   lease.ID,
		}),
		containerd.WithRuntime("io.containerd.runc.v2", nil),
		containerd.WithNewSpec(
			oci.WithRootFSPath(r.cfg.Rootfs),
			oci.WithRootFSReadonly(),
			oci.WithDefaultPathEnv,
			oci.WithProcessArgs(args...),
			oci.WithHostname(name),
			oci.WithCgroup(path.Join(r.cfg.Cgroup, name)),
			oci.WithLinuxNamespace(specs.LinuxNamespace{Type: specs.NetworkNamespace, Path: netnsPath(name)}),
			withSpecVersion("1.0.2"), // what Debian 12's runc knows
		),
	)
	if err != nil {
		return nil, fmt.Errorf("create the container: %w", err)
	}
	return c, nil
}

func withSpecVersion(v string) oci.SpecOpts {
	return func(_ context.Context, _ oci.Client, _ *containers.Container, s *oci.Spec) error {
		s.Version = v
		return nil
	}
}
