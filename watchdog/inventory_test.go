package watchdog

import (
	"context"
	"net/netip"
	"testing"

	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/workload"

	. "github.com/ipamd/ipamd/netdb/netdbtest"
)

// forgetfulBut forgets what the kernel has of every address but one.
type forgetfulBut struct {
	noPorts
	addr netip.Addr
}

func (p forgetfulBut) Forget(context.Context, ...netip.Prefix) error {
	return census.NewAddrErrors(map[netip.Addr]error{p.addr: errBroken})
}

// Three releases are confirmed together. The bridge of one cannot be read, and the kernel's entries of
// another stay: each holds up its own release, and the kernel is asked once for all.
func TestABridgeThatCannotBeReadHoldsUpItsOwnReleasesOnly(t *testing.T) {
	t.Parallel()
	w, book, _ := newWatchdog(t)
	var batch []*attempt
	var of []*ipam.Lease
	for _, sandbox := range []string{"ends", "unread", "kept"} {
		l := Reserve(t, book, sandbox)
		if _, err := book.Bind(ctx, client, l.ID, 0, ipam.Binding{HostInterface: "veth-" + sandbox}); err != nil {
			t.Fatal(err)
		}
		l, _, err := w.Release(ctx, client, l.ID, "", 0)
		if err != nil || l.State != ipam.Releasing {
			t.Fatalf("%+v, %v", l, err)
		}
		of = append(of, l)
		a := &attempt{lease: l, leases: new(workload.Leases)}
		a.facts = w.look(ctx, l, nil, nil, a.leases)
		batch = append(batch, a)
		w.mu.Lock()
		w.follow(l)
		w.mu.Unlock()
	}
	settled := 0
	w.cfg.Settle = func(context.Context, ...netip.Addr) error {
		settled++
		return census.NewAddrErrors(map[netip.Addr]error{of[1].Addr: errBroken})
	}
	w.cfg.Kernel = forgetfulBut{addr: of[2].Addr}
	w.confirm(ctx, batch)
	for i, want := range []ipam.State{ipam.Cooling, ipam.Releasing, ipam.Releasing} {
		if l, _ := book.At(of[i].Addr); l == nil || l.State != want {
			t.Errorf("%s: %+v, want %s; %+v", of[i].Sandbox, l, want, w.tracks[of[i].ID])
		}
	}
	if settled != 1 {
		t.Errorf("the kernel's news was read %d times", settled)
	}
}
