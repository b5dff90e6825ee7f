package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/containernetworking/cni/pkg/skel"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/client/answer"
)

// del asks for the release of an interface's leases. What has none is released already.
//
// A daemon that is not there does not keep a container from being removed: the lease stays
// as it is, bound, and the daemon ends it once the kernel shows nothing of its namespace
// and its port.
func del(args *skel.CmdArgs) error {
	c := readAnyway(args)
	if c.listed && !c.main {
		return nil
	}
	o, ipamd := ownerOf(c, args), c.daemon()
	ctx, cancel := context.WithTimeout(context.Background(), c.wait+mostCall)
	defer cancel()
	if c.main {
		if err := o.unplug(ctx); err != nil {
			return plugError(c, err)
		}
	}
	// Also of a daemon that is there and does not answer.
	ctx, cancel = context.WithTimeout(ctx, releaseWait)
	defer cancel()
	err := patiently(ctx, min(c.wait, releaseWait), func(ctx context.Context) error {
		held, err := o.open(ctx, ipamd)
		if err != nil {
			return err
		}
		return release(ctx, ipamd, held)
	})
	if passes(err) {
		fmt.Fprintf(os.Stderr, "ipamd: the lease of %s of %s is not released now, and ends once ipamd sees that its workload is gone: %v\n", o.ifname, o.container, err)
		return nil
	}
	return refused(c, err)
}

// release says of each lease that its owner wants it no more.
func release(ctx context.Context, ipamd daemon, held []api.Lease) error {
	var errs []error
	for _, l := range held {
		_, err := ipamd.release(ctx, l.ID, api.ReleaseRequest{UID: l.UID})
		if !errors.Is(err, answer.Class(api.LeaseGone)) && !errors.Is(err, answer.Class(api.NotFound)) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
