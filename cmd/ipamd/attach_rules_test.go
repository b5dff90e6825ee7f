package main

import (
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/client"
	"github.com/ipamd/ipamd/internal/nstest"
	"github.com/ipamd/ipamd/internal/realtest"
)

// M1: where the rules of nftables of what an allocation attached cannot be made, it leaves neither
// the lease that it had bound nor its port.
func TestM1AllocateAttachesWithoutItsRules(t *testing.T) {
	t.Parallel()
	realtest.Need(t, "nft")
	w := newWorld(t, enforced)
	w.helper()
	owner := exec.Command("nft", "-i") // its table is changed by no other while it lives
	owner.Stdout, owner.Stderr = w.log, w.log
	in, err := owner.StdinPipe()
	must(t, err)
	w.ns.Do(func() { must(t, owner.Start()) })
	fmt.Fprintln(in, "delete table bridge ipamd; add table bridge ipamd { flags owner; }")
	realtest.Eventually(t, wait, "the table to be another's", func() bool {
		return strings.Contains(w.ns.Exec("nft", "list", "table", "bridge", "ipamd"), "owner")
	})
	given, err := w.client.Allocate(ctx, api.AllocateRequest{Sandbox: "a", Attach: &api.AttachRequest{Netns: nstest.New(t).Path()}})
	if !errors.Is(err, client.ErrBridgeNotReady) {
		t.Errorf("attached: %+v, %v", given, err)
	}
	if r, err := w.client.Leases(ctx, client.LeaseFilter{Sandbox: "a"}); err != nil || slices.ContainsFunc(r.Leases, func(l api.Lease) bool { return l.State != api.Releasing && l.State != api.Cooling }) {
		t.Errorf("left: %+v %v", r, err)
	}
	// The helper takes it away once it has heard that nobody wants it, which is as the call is answered.
	realtest.Eventually(t, wait, "its port is gone", func() bool { return w.rt0() == "" })
	must(t, in.Close())
	must(t, owner.Wait())
	realtest.Eventually(t, wait, "the release to be confirmed", func() bool {
		r, err := w.client.Leases(ctx, client.LeaseFilter{Sandbox: "a"})
		return err == nil && !slices.ContainsFunc(r.Leases, func(l api.Lease) bool { return l.State != api.Cooling })
	})
}
