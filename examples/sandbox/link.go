package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/plumb"
)

// hostName is the name of the bridge's end: from the random end of the
// lease's id, because a name of a sandbox is longer than the 15 bytes that an
// interface may have.
func hostName(leaseID string) string { return "sb" + leaseID[len(leaseID)-12:] }

func netnsPath(name string) string { return filepath.Join("/run/netns", "sandbox-"+name) }

// errHalf means that a namespace of this name is there, without a container.
var errHalf = errors.New("it is there already")

// plug makes the sandbox's network namespace and connects it to the bridge,
// with address and routes as ipamd gave them. What fails leaves nothing.
func plug(ctx context.Context, name string, given *api.AllocateReply) (_ plumb.Spec, _ plumb.Port, err error) {
	spec, err := plumb.Describe(given.Leases, given.Networks)
	if err != nil {
		return plumb.Spec{}, plumb.Port{}, err
	}
	spec.Netns, spec.Host = netnsPath(name), hostName(spec.Owner)
	err = plumb.MakeNetns(spec.Netns)
	if errors.Is(err, fs.ErrExist) { // it may belong to another program
		return plumb.Spec{}, plumb.Port{}, fmt.Errorf("make network namespace %s: %w", spec.Netns, errHalf)
	}
	if err != nil {
		return plumb.Spec{}, plumb.Port{}, err
	}
	port, err := plumb.Make(ctx, spec)
	if err != nil {
		return plumb.Spec{}, plumb.Port{}, errors.Join(err, plumb.RemoveNetns(spec.Netns))
	}
	return spec, port, nil
}

// unplug takes the port off the bridge and the namespace away. What is not
// there is no error: a removal that died half-way is done again.
func unplug(ctx context.Context, name, leaseID string) error {
	// The port first: it goes at once, with both ends. The kernel removes a
	// namespace, and the port with it, some time later.
	if err := plumb.Remove(ctx, hostName(leaseID), leaseID); err != nil {
		return err
	}
	return plumb.RemoveNetns(netnsPath(name))
}
