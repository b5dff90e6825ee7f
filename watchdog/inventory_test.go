package watchdog

import (
	"context"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/netdb"
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

// releasing has each sandbox release a lease that it had bound, and returns an attempt to confirm each, of
// which the first stage has found nothing.
func releasing(t *testing.T, w *Watchdog, book *netdb.Book, sandboxes ...string) (batch []*attempt, of []*ipam.Lease) {
	t.Helper()
	for _, sandbox := range sandboxes {
		l := Reserve(t, book, sandbox)
		if _, err := book.Bind(ctx, client, l.ID, 0, ipam.Binding{HostInterface: "veth-" + sandbox}); err != nil {
			t.Fatal(err)
		}
		l, _, err := w.Release(ctx, client, l.ID, "", 0)
		if err != nil || l.State != ipam.Releasing {
			t.Fatalf("%+v, %v", l, err)
		}
		a := &attempt{lease: l, leases: new(workload.Leases)}
		a.facts = w.look(ctx, l, nil, nil, a.leases)
		w.mu.Lock()
		w.follow(l)
		w.mu.Unlock()
		batch, of = append(batch, a), append(of, l)
	}
	return batch, of
}

// become checks the states of leases.
func become(t *testing.T, w *Watchdog, book *netdb.Book, of []*ipam.Lease, states ...ipam.State) {
	t.Helper()
	for i, want := range states {
		if l, _ := book.At(of[i].Addr); l == nil || l.State != want {
			t.Errorf("%s: %+v, want %s; %+v", of[i].Sandbox, l, want, w.tracks[of[i].ID])
		}
	}
}

// Three releases are confirmed together. The bridge of one cannot be read, and the kernel's entries of
// another stay: each holds up its own release, and the kernel is asked once for all.
func TestABridgeThatCannotBeReadHoldsUpItsOwnReleasesOnly(t *testing.T) {
	t.Parallel()
	w, book, _ := newWatchdog(t)
	batch, of := releasing(t, w, book, "ends", "unread", "kept")
	settled := 0
	w.cfg.Settle = func(context.Context, ...netip.Addr) error {
		settled++
		return census.NewAddrErrors(map[netip.Addr]error{of[1].Addr: errBroken})
	}
	w.cfg.Kernel = forgetfulBut{addr: of[2].Addr}
	w.confirm(ctx, batch)
	become(t, w, book, of, ipam.Cooling, ipam.Releasing, ipam.Releasing)
	if settled != 1 {
		t.Errorf("the kernel's news was read %d times", settled)
	}
}

// A bridge does not answer until the time of the attempt is over. The releases on another have theirs
// behind that, and the kernel's news is read for them anew.
func TestABridgeThatHangsHoldsUpItsOwnReleasesOnly(t *testing.T) {
	t.Parallel()
	w, book, _ := newWatchdog(t, func(c *Config) { c.Timeout = 2 * time.Second })
	batch, of := releasing(t, w, book, "ends", "hangs", "ends-too")
	var asked [][]netip.Addr
	w.cfg.Settle = func(ctx context.Context, about ...netip.Addr) error {
		asked = append(asked, about)
		if !slices.Contains(about, of[1].Addr) {
			return ctx.Err()
		}
		<-ctx.Done()
		return census.NewAddrErrors(map[netip.Addr]error{of[1].Addr: ctx.Err()})
	}
	w.confirm(ctx, batch)
	become(t, w, book, of, ipam.Cooling, ipam.Releasing, ipam.Cooling)
	if len(asked) != 2 || !slices.Equal(asked[1], []netip.Addr{of[0].Addr, of[2].Addr}) {
		t.Errorf("the kernel's news was read for %v", asked)
	}
}
