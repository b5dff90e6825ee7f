package server_test

import (
	"context"
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/internal/realtest"
	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/netdb"
	"github.com/ipamd/ipamd/netdb/netdbtest"
	"github.com/ipamd/ipamd/server"
	"github.com/ipamd/ipamd/server/servertest"
)

// speakOfThePast serves a book whose changes are as old as ago says.
func speakOfThePast(t *testing.T) (s *speaker, book *netdb.Book, ago *time.Duration) {
	t.Helper()
	ago = new(time.Duration)
	opts := netdbtest.Options()
	opts.Now = func() ipam.Stamp {
		now := ipam.Now()
		return ipam.Stamp{Wall: now.Wall.Add(-*ago), Boottime: now.Boottime - *ago, Mono: now.Mono - *ago, BootID: now.BootID}
	}
	book = netdbtest.OpenAt(t, filepath.Join(t.TempDir(), "book.db"), opts)
	netdbtest.Pool(t, book, "default", "10.8.64.0/24")
	return speak(t, servertest.Start(t, func(c *server.Config) { c.Book = book })), book, ago
}

// A status names what ought to have moved on, longest wait first: releases
// that are not confirmed, with what keeps them, and reservations past their
// deadline. What is young, and what holds an address rightly, is not in it.
func TestStatusNamesWhatIsStuck(t *testing.T) {
	s, book, ago := speakOfThePast(t)
	let := func(l *ipam.Lease) *ipam.Lease {
		t.Helper()
		if _, err := book.Bind(t.Context(), netdbtest.Who(ipam.ByClient, "bound"), l.ID, 0, ipam.Binding{HostInterface: l.Sandbox}); err != nil {
			t.Fatal(err)
		}
		released, err := book.Release(context.Background(), netdbtest.Who(ipam.ByClient, "released"), l.ID, "", 0)
		if err != nil {
			t.Fatal(err)
		}
		return released
	}
	*ago = 20 * time.Minute
	late := netdbtest.Reserve(t, book, "late") // its deadline is 10 minutes
	*ago = 5 * time.Minute
	netdbtest.Reserve(t, book, "pulling its image")
	stuck := let(netdbtest.Reserve(t, book, "stuck"))
	*ago = 0
	var st *api.Status
	realtest.InTime(t, 10*time.Second, "a release that is young", func() time.Duration {
		begun := time.Now()
		young := let(netdbtest.Reserve(t, book, "young"))
		st = want[api.Status](t, s, 200, "Status", "GET", "/v1/status", "")
		took := time.Since(begun)
		if _, err := book.Confirm(t.Context(), netdbtest.Who(ipam.ByWatchdog, "removal_confirmed"), young.ID, young.Rev, nil); err != nil {
			t.Fatal(err)
		}
		return took
	})
	if st.StuckTotal != 2 || len(st.Stuck) != 2 {
		t.Fatalf("stuck: %d, %+v", st.StuckTotal, st.Stuck)
	}
	if one := st.Stuck[0]; one.Lease.ID != late.ID || one.Lease.State != api.Reserved || len(one.Blockers) != 0 {
		t.Errorf("the reservation: %+v", one)
	}
	if one := st.Stuck[1]; one.Lease.ID != stuck.ID || one.Lease.State != api.Releasing || len(one.Blockers) != 1 || one.Blockers[0].Kind != "unconfirmed" {
		t.Errorf("the release: %+v", one)
	}
}

// On the worst day a status stays small: each list has its bound, and the
// number that it stands for.
func TestStatusIsBounded(t *testing.T) {
	s, book, ago := speakOfThePast(t)
	*ago = time.Hour
	var set []string
	for i := range 20 {
		addr := netip.AddrFrom4([4]byte{10, 8, 64, byte(100 + i)})
		if _, err := book.Quarantine(t.Context(), netdbtest.Who(ipam.ByReconciler, "seen_on_wire"), addr, []byte(`[{"witness":"netns"}]`)); err != nil {
			t.Fatal(err)
		}
		set = append(set, addr.String())
		netdbtest.Reserve(t, book, fmt.Sprintf("s%d", i))
	}
	*ago = 0
	st := want[api.Status](t, s, 200, "Status", "GET", "/v1/status", "")
	var got []string
	for _, l := range st.Quarantined {
		got = append(got, l.Address)
	}
	slices.Reverse(set)
	if !slices.Equal(got, set[:16]) {
		t.Errorf("quarantined %v, want the newest 16 of %v", got, set)
	}
	if len(st.Stuck) != 16 || st.StuckTotal != 20 || st.Stuck[0].Lease.Sandbox != "s0" {
		t.Errorf("%d of %d stuck, first %+v", len(st.Stuck), st.StuckTotal, st.Stuck[0].Lease)
	}
}

// The last conflict is the newest that a witness or a second claim made, and it
// is reported also once it is over. What an operator or a rebuild quarantines later is
// none.
func TestStatusShowsTheLastConflict(t *testing.T) {
	s, book, _ := speakOfThePast(t)
	last := func() string {
		t.Helper()
		st := want[api.Status](t, s, 200, "Status", "GET", "/v1/status", "")
		if st.LastConflict == nil {
			return fmt.Sprint("none, stands ", st.LastConflictStands)
		}
		return fmt.Sprintf("%s by %s, stands %v", st.LastConflict.Address, st.LastConflict.Actor, st.LastConflictStands)
	}
	quarantine := func(actor ipam.Actor, reason, addr string) {
		t.Helper()
		if _, err := book.Quarantine(t.Context(), netdbtest.Who(actor, reason), netip.MustParseAddr(addr), []byte(`[{"witness":"netns"}]`)); err != nil {
			t.Fatal(err)
		}
	}
	quarantine(ipam.ByOperator, "set_aside", "10.8.64.7")
	quarantine(ipam.ByReconciler, "rebuilt", "10.8.64.8")
	if got := last(); got != "none, stands false" {
		t.Errorf("without a conflict: %s", got)
	}
	quarantine(ipam.ByAllocator, ipam.SeenOnWire, "10.8.64.9")
	quarantine(ipam.ByReconciler, ipam.SeenOnWire, "10.8.64.10")
	quarantine(ipam.ByOperator, "set_aside", "10.8.64.11")
	for range 2 {
		if got := last(); got != "10.8.64.10 by reconciler, stands true" {
			t.Errorf("last conflict: %s", got)
		}
	}
	if _, err := netdbtest.Clear(book, netip.MustParseAddr("10.8.64.10")); err != nil {
		t.Fatal(err)
	}
	if got := last(); got != "10.8.64.10 by reconciler, stands false" {
		t.Errorf("once it is cleared: %s", got)
	}
	quarantine(ipam.ByOperator, "set_aside", "10.8.64.10")
	if got := last(); got != "10.8.64.10 by reconciler, stands false" {
		t.Errorf("quarantined again, by hand: %s", got)
	}
}
