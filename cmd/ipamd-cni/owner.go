package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"

	"github.com/ipamd/ipamd/api"
)

// An owner is whose a lease is: one interface of one container in one network. The lease's
// sandbox is the container's id, its uid has the network before that, and its interface is
// the container's.
type owner struct{ network, container, ifname string }

func ownerOf(c *config, args *skel.CmdArgs) owner {
	return owner{c.Name, args.ContainerID, args.IfName}
}

// mostUID is how long a uid of a sandbox may be.
const mostUID = 253

// uid is the same for the same network and container. One that would be too long is a hash.
func (o owner) uid() string {
	u := o.network + "/" + o.container
	if len(u) > mostUID {
		sum := sha256.Sum256([]byte(u))
		u = hex.EncodeToString(sum[:])
	}
	return u
}

// podArgs are what CNI_ARGS may say; a key that is none of these is an error unless
// IgnoreUnknown says otherwise.
type podArgs struct {
	types.CommonArgs
	IP                         types.UnmarshallableString
	MAC                        types.UnmarshallableString // the main plugin's
	K8S_POD_NAMESPACE          types.UnmarshallableString //nolint:revive // the protocol's spelling
	K8S_POD_NAME               types.UnmarshallableString //nolint:revive // the same
	K8S_POD_UID                types.UnmarshallableString //nolint:revive // the same
	K8S_POD_INFRA_CONTAINER_ID types.UnmarshallableString //nolint:revive // the same
}

func argsOf(args *skel.CmdArgs) (a podArgs, err error) {
	if err := types.LoadArgs(args.Args, &a); err != nil {
		return a, types.NewError(types.ErrInvalidEnvironmentVariables, "CNI_ARGS: "+err.Error(), "")
	}
	return a, nil
}

// shownBy says to the daemon that none of its container runtimes need know this container:
// an empty list of theirs is then no loss of sight of it.
const shownBy = "ipamd.dev/shown-by"

// labels are for people who look at a lease, but for shownBy.
func (o owner) labels(a podArgs) map[string]string {
	out := map[string]string{"cni.dev/network": o.network, shownBy: "kernel"}
	for key, v := range map[string]types.UnmarshallableString{"pod-namespace": a.K8S_POD_NAMESPACE, "pod-name": a.K8S_POD_NAME, "pod-uid": a.K8S_POD_UID} {
		if v != "" {
			out["cni.dev/"+key] = string(v)
		}
	}
	return out
}

// open returns the leases that an owner holds, one of each family at most.
func (o owner) open(ctx context.Context, ipamd daemon) (out []api.Lease, err error) {
	all, err := ipamd.leases(ctx, o.container)
	if err != nil {
		return nil, err
	}
	for _, l := range all {
		if isOpen(l) && l.UID == o.uid() && l.Interface == o.ifname {
			out = append(out, l)
		}
	}
	return out, nil
}

// holds is open, of a daemon that may not be ready yet.
func (o owner) holds(ctx context.Context, c *config, ipamd daemon) (held []api.Lease, err error) {
	err = patiently(ctx, c.wait, func(ctx context.Context) (err error) {
		held, err = o.open(ctx, ipamd)
		return err
	})
	return held, err
}

func isOpen(l api.Lease) bool {
	return l.State == api.Reserved || l.State == api.Bound || l.State == api.Paused
}
