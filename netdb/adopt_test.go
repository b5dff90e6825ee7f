package netdb_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"testing"
	"time"

	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/netdb"
	. "github.com/ipamd/ipamd/netdb/netdbtest"
)

var (
	reconciler = Who(ipam.ByReconciler, "adopted")
	operator   = Who(ipam.ByOperator, "set_aside")
	two        = netip.MustParseAddr("10.8.64.2")
	foreignID  = "01a1fdb6-0028-705b-b6df-000000000000" // a lease id of another book
)

// adoption is that of the sandbox "a" on an address, whose row is at rev.
func adoption(addr netip.Addr, rev int64, id string) ipam.Adoption {
	return ipam.Adoption{Addr: addr, Rev: rev, ID: id, Sandbox: "a", Evidence: evidence,
		Binding: ipam.Binding{Containers: []ipam.Container{{Namespace: "n", ID: "c"}}, MAC: "02-00-00-00-00-0A"}}
}

// lose deletes a lease's row by hand, on a book that is closed for it.
func lose(t *testing.T, b *netdb.Book, l *ipam.Lease, allow ...string) *netdb.Book {
	t.Helper()
	path := b.Info().Path
	Close(t, b)
	raw(t, path, fmt.Sprintf(`DELETE FROM leases WHERE address = '%s'`, l.Addr))
	return OpenAt(t, path, Options(), allow...)
}

// reserveAs gives an incarnation of the sandbox "a" an address.
func reserveAs(t *testing.T, b *netdb.Book, uid, iface string) *ipam.Lease {
	t.Helper()
	c, err := b.Pick(b.Pools()[0].UID, Policy)
	if err != nil {
		t.Fatal(err)
	}
	ls, err := b.Reserve(ctx, allocator, netdb.Reservation{Candidate: c, Sandbox: "a", UID: uid, Interface: iface,
		Attempt: 3, BindWithin: time.Minute, Labels: map[string]string{"k": "v"}})
	if err != nil {
		t.Fatal(err)
	}
	return ls[0]
}

// setAside brings a lease of "a-1" on eth7 into quarantine under its own id.
func setAside(t *testing.T, b *netdb.Book) *ipam.Lease {
	t.Helper()
	l := reserveAs(t, b, "a-1", "eth7")
	r, err := b.Release(ctx, client, l.ID, "", 0)
	if err != nil {
		t.Fatal(err)
	}
	q, err := b.QuarantineReleasing(ctx, watchdog, r.ID, r.Rev, evidence)
	if err != nil {
		t.Fatal(err)
	}
	return q
}

// What a workload with a label gets, by what the book knows: its id, its
// incarnation and its interface. R1 is the row that was deleted by hand.
func TestR1AdoptionByWhatTheBookKnows(t *testing.T) {
	for name, tt := range map[string]struct {
		before     func(t *testing.T, b *netdb.Book) (*netdb.Book, ipam.Adoption)
		sameID     bool
		uid, iface string
	}{
		"a free address, an id of another book": {func(t *testing.T, b *netdb.Book) (*netdb.Book, ipam.Adoption) {
			return b, adoption(two, 0, foreignID)
		}, true, "a", "eth0"},
		"a free address, no id": {func(t *testing.T, b *netdb.Book) (*netdb.Book, ipam.Adoption) {
			return b, adoption(two, 0, "")
		}, false, "a", "eth0"},
		"an id that is no UUID": {func(t *testing.T, b *netdb.Book) (*netdb.Book, ipam.Adoption) {
			return b, adoption(two, 0, "my-lease")
		}, false, "a", "eth0"},
		"a UUID spelled in capitals": {func(t *testing.T, b *netdb.Book) (*netdb.Book, ipam.Adoption) {
			return b, adoption(two, 0, "01A1FDB6-0028-705B-B6DF-000000000000")
		}, false, "a", "eth0"},
		"a row that was deleted by hand": {func(t *testing.T, b *netdb.Book) (*netdb.Book, ipam.Adoption) {
			l := reserveAs(t, b, "a-1", "eth7")
			return lose(t, b, l), adoption(l.Addr, 0, l.ID)
		}, true, "a-1", "eth7"},
		"deleted by hand while it was releasing": {func(t *testing.T, b *netdb.Book) (*netdb.Book, ipam.Adoption) {
			l := reserveAs(t, b, "a-1", "eth7")
			if _, err := b.Release(ctx, client, l.ID, "", 0); err != nil {
				t.Fatal(err)
			}
			return lose(t, b, l), adoption(l.Addr, 0, l.ID)
		}, true, "a-1", "eth7"},
		"deleted by hand, and another incarnation is named": {func(t *testing.T, b *netdb.Book) (*netdb.Book, ipam.Adoption) {
			l := reserveAs(t, b, "a-1", "eth7")
			a := adoption(l.Addr, 0, l.ID)
			a.UID = "a-2"
			return lose(t, b, l), a
		}, false, "a-2", "eth0"},
		"deleted by hand, and another interface is named": {func(t *testing.T, b *netdb.Book) (*netdb.Book, ipam.Adoption) {
			l := reserveAs(t, b, "a-1", "eth7")
			a := adoption(l.Addr, 0, l.ID)
			a.Interface = "eth1"
			return lose(t, b, l), a
		}, false, "a", "eth1"},
		"deleted by hand, and its interface was taken since": {func(t *testing.T, b *netdb.Book) (*netdb.Book, ipam.Adoption) {
			l := reserveAs(t, b, "a-1", "eth0")
			b = lose(t, b, l)
			reserveAs(t, b, "a-1", "eth0")
			return b, adoption(l.Addr, 0, l.ID)
		}, false, "a-1", "eth1"},
		"an id of this sandbox on another address": {func(t *testing.T, b *netdb.Book) (*netdb.Book, ipam.Adoption) {
			l := reserveAs(t, b, "a-1", "eth7")
			return lose(t, b, l, netdb.RowsHaveTheirLast), adoption(l.Addr.Next(), 0, l.ID)
		}, false, "a", "eth0"},
		"an id of another sandbox": {func(t *testing.T, b *netdb.Book) (*netdb.Book, ipam.Adoption) {
			l := Reserve(t, b, "b")
			return lose(t, b, l), adoption(l.Addr, 0, l.ID)
		}, false, "a", "eth0"},
		"its own lease cools": {func(t *testing.T, b *netdb.Book) (*netdb.Book, ipam.Adoption) {
			l := Cool(t, b, reserveAs(t, b, "a-1", "eth7"))
			return b, adoption(l.Addr, l.Rev, l.ID)
		}, false, "a-1", "eth7"},
		"its own lease ended, and left no row": {func(t *testing.T, b *netdb.Book) (*netdb.Book, ipam.Adoption) {
			l := reserveAs(t, b, "a-1", "eth7")
			if _, err := b.Expire(ctx, watchdog, l.ID, l.Rev, nil); err != nil {
				t.Fatal(err)
			}
			return b, adoption(l.Addr, 0, l.ID)
		}, false, "a-1", "eth7"},
		"another's lease cools": {func(t *testing.T, b *netdb.Book) (*netdb.Book, ipam.Adoption) {
			l := Cool(t, b, Reserve(t, b, "b"))
			return b, adoption(l.Addr, l.Rev, foreignID)
		}, true, "a", "eth0"},
		"it was taken for a stranger": {func(t *testing.T, b *netdb.Book) (*netdb.Book, ipam.Adoption) {
			q, err := b.Quarantine(ctx, operator, two, evidence)
			if err != nil {
				t.Fatal(err)
			}
			return b, adoption(two, q.Rev, foreignID)
		}, true, "a", "eth0"},
		"its own lease was quarantined": {func(t *testing.T, b *netdb.Book) (*netdb.Book, ipam.Adoption) {
			q := setAside(t, b)
			return b, adoption(q.Addr, q.Rev, q.ID)
		}, true, "a-1", "eth7"},
		"its own lease was quarantined and cleared": {func(t *testing.T, b *netdb.Book) (*netdb.Book, ipam.Adoption) {
			q := setAside(t, b)
			c, err := b.ClearAt(ctx, operator, q.ID, q.Rev, nil)
			if err != nil {
				t.Fatal(err)
			}
			return b, adoption(c.Addr, c.Rev, c.ID)
		}, false, "a-1", "eth7"},
		"quarantined, and the address was another's since": {func(t *testing.T, b *netdb.Book) (*netdb.Book, ipam.Adoption) {
			q := setAside(t, b)
			other := adoption(q.Addr, q.Rev, "")
			other.Sandbox = "b"
			o, err := b.Adopt(ctx, reconciler, other)
			if err != nil {
				t.Fatal(err)
			}
			o = Cool(t, b, o)
			return b, adoption(q.Addr, o.Rev, q.ID)
		}, false, "a-1", "eth7"},
		"the id of a lease that stands elsewhere": {func(t *testing.T, b *netdb.Book) (*netdb.Book, ipam.Adoption) {
			l := reserveAs(t, b, "a", "eth0")
			return b, adoption(l.Addr.Next(), 0, l.ID)
		}, false, "a", "eth1"},
		"the sandbox holds eth0 and eth1": {func(t *testing.T, b *netdb.Book) (*netdb.Book, ipam.Adoption) {
			reserveAs(t, b, "a", "eth0")
			last := reserveAs(t, b, "a", "eth1")
			return b, adoption(last.Addr.Next(), 0, foreignID)
		}, true, "a", "eth2"},
	} {
		t.Run(name, func(t *testing.T) {
			b := OpenAt(t, filepath.Join(t.TempDir(), "book.db"), Options())
			Pool(t, b, "default", "10.8.64.0/24")
			b, a := tt.before(t, b)
			rev := b.Rev()
			got, err := b.Adopt(ctx, reconciler, a)
			if err != nil {
				t.Fatal(err)
			}
			if got.Addr != a.Addr || got.State != ipam.Bound || got.Sandbox != "a" || got.UID != tt.uid || got.Interface != tt.iface {
				t.Errorf("adopted %+v, want uid %s on %s", got, tt.uid, tt.iface)
			}
			if (got.ID == a.ID) != tt.sameID {
				t.Errorf("its id is %s, the label's %s; that they are the same should be %v", got.ID, a.ID, tt.sameID)
			}
			if got.MAC != "02:00:00:00:00:0a" || len(got.Containers) != 1 || string(got.Evidence) != string(evidence) {
				t.Errorf("what the witnesses said is lost: %+v", got)
			}
			if at, ok := b.At(a.Addr); !ok || at.ID != got.ID || b.Rev() != rev+1 {
				t.Errorf("the row is %+v after %d revisions", at, b.Rev()-rev)
			}
			if held, ok := b.OpenLease(got.Owner()); !ok || held.ID != got.ID {
				t.Errorf("its owner holds %+v", held)
			}
			if a.Rev == 0 {
				a.Rev = 1
			}
			if _, err := b.Adopt(ctx, reconciler, a); !errors.Is(err, ipam.ErrStale) {
				t.Errorf("adopted twice on what was decided once: %v", err)
			}
		})
	}
}

// A lease that is adopted back under its id keeps what a client has said.
func TestAdoptedBackFromQuarantine(t *testing.T) {
	b := Open(t)
	q := setAside(t, b)
	got, err := b.Adopt(ctx, reconciler, adoption(q.Addr, q.Rev, q.ID))
	if err != nil || got.Attempt != 3 || got.Labels["k"] != "v" || got.Created != q.Created {
		t.Fatalf("%+v, %v, was %+v", got, err, q)
	}
	// The owner's wish to release it is still understood.
	if r, err := b.Release(ctx, client, q.ID, "a-1", 0); err != nil || r.State != ipam.Releasing {
		t.Error(r, err)
	}
}

// An adoption that is refused writes nothing.
func TestRefusedAdoptions(t *testing.T) {
	path := filepath.Join(t.TempDir(), "book.db")
	b := OpenAt(t, path, Options())
	spec := ipam.PoolSpec{Name: "default", Prefix: netip.MustParsePrefix("10.8.64.0/24"), Gateway: netip.MustParseAddr("10.8.64.1"), Bridge: "rt0"}
	spec.Exclude = []ipam.Range{{From: netip.MustParseAddr("10.8.64.200"), To: netip.MustParseAddr("10.8.64.201")}}
	if _, err := b.EnsurePool(ctx, operator, spec); err != nil {
		t.Fatal(err)
	}
	held, broken := reserveAs(t, b, "a", "eth0"), Reserve(t, b, "b")
	cooling := Cool(t, b, Reserve(t, b, "c"))
	bound, err := b.Bind(ctx, client, Reserve(t, b, "d").ID, 0, ipam.Binding{HostInterface: "veth1"})
	if err != nil {
		t.Fatal(err)
	}
	leaving, err := b.Release(ctx, client, Reserve(t, b, "e").ID, "", 0)
	if err != nil {
		t.Fatal(err)
	}
	Close(t, b)
	raw(t, path, fmt.Sprintf(`PRAGMA ignore_check_constraints = 1; UPDATE leases SET state = 'dreaming' WHERE address = '%s'`, broken.Addr))
	allow := []string{netdb.RowsAreReadable, netdb.RowsHaveTheirLast}
	b = OpenAt(t, path, Options(), allow...)
	at := func(s string) netip.Addr { return netip.MustParseAddr(s) }
	rev := b.Rev()
	for name, tt := range map[string]struct {
		who  ipam.Who
		a    ipam.Adoption
		with func(*ipam.Adoption)
		want error
	}{
		"a row came since":                {reconciler, adoption(held.Addr, 0, ""), nil, ipam.ErrStale},
		"the row went since":              {reconciler, adoption(at("10.8.64.50"), 7, ""), nil, ipam.ErrStale},
		"the row changed since":           {reconciler, adoption(cooling.Addr, cooling.Rev-1, ""), nil, ipam.ErrStale},
		"it is held":                      {reconciler, adoption(held.Addr, held.Rev, held.ID), func(a *ipam.Adoption) { a.Interface = "eth5" }, ipam.ErrState},
		"it is bound":                     {reconciler, adoption(bound.Addr, bound.Rev, bound.ID), nil, ipam.ErrState},
		"it is being released":            {reconciler, adoption(leaving.Addr, leaving.Rev, leaving.ID), nil, ipam.ErrState},
		"outside every pool":              {reconciler, adoption(at("10.9.0.2"), 0, ""), nil, ipam.ErrNotInPool},
		"excluded":                        {reconciler, adoption(at("10.8.64.200"), 0, ""), nil, ipam.ErrNotInPool},
		"the gateway":                     {reconciler, adoption(at("10.8.64.1"), 0, ""), nil, ipam.ErrNotInPool},
		"no address":                      {reconciler, adoption(netip.Addr{}, 0, ""), nil, ipam.ErrNotInPool},
		"named by an unreadable row":      {reconciler, adoption(broken.Addr, 0, ""), nil, ipam.ErrTaken},
		"by a client":                     {client, adoption(at("10.8.64.50"), 0, ""), nil, ipam.ErrState},
		"by the allocator":                {allocator, adoption(at("10.8.64.50"), 0, ""), nil, ipam.ErrState},
		"no sandbox":                      {reconciler, adoption(at("10.8.64.50"), 0, ""), func(a *ipam.Adoption) { a.Sandbox = "" }, ipam.ErrInvalid},
		"a uid that is not UTF-8":         {reconciler, adoption(at("10.8.64.50"), 0, ""), func(a *ipam.Adoption) { a.UID = "\xff" }, ipam.ErrInvalid},
		"an interface with a slash":       {reconciler, adoption(at("10.8.64.50"), 0, ""), func(a *ipam.Adoption) { a.Interface = "a/b" }, ipam.ErrInvalid},
		"nothing that it is bound to":     {reconciler, adoption(at("10.8.64.50"), 0, ""), func(a *ipam.Adoption) { a.Binding = ipam.Binding{} }, ipam.ErrInvalid},
		"evidence that is no JSON":        {reconciler, adoption(at("10.8.64.50"), 0, ""), func(a *ipam.Adoption) { a.Evidence = json.RawMessage("seen") }, ipam.ErrInvalid},
		"evidence with nothing in it":     {reconciler, adoption(at("10.8.64.50"), 0, ""), func(a *ipam.Adoption) { a.Evidence = json.RawMessage("[]") }, ipam.ErrInvalid},
		"the named interface is held":     {reconciler, adoption(at("10.8.64.50"), 0, ""), func(a *ipam.Adoption) { a.Interface = "eth0" }, nil},
		"and by what a history would say": {reconciler, adoption(at("10.8.64.50"), 0, held.ID), func(a *ipam.Adoption) { a.Interface = "eth0" }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			if tt.with != nil {
				tt.with(&tt.a)
			}
			got, err := b.Adopt(ctx, tt.who, tt.a)
			var owned *ipam.OwnedError
			if tt.want != nil && !errors.Is(err, tt.want) || tt.want == nil && (!errors.As(err, &owned) || owned.Lease.ID != held.ID) {
				t.Errorf("adopted %+v, %v, want %v", got, err, tt.want)
			}
			if b.Rev() != rev {
				t.Error("it wrote something")
			}
		})
	}
	Close(t, b, allow...)
}

// Two workloads with the label of one lease, in one batch and after another:
// the id has one row.
func TestOneIDIsAdoptedOnce(t *testing.T) {
	b := Open(t)
	a, c := adoption(two, 0, foreignID), adoption(two.Next(), 0, foreignID)
	c.Sandbox = "c"
	errs := make(chan error, 2)
	for _, one := range []ipam.Adoption{a, c} {
		go func() {
			_, err := b.Adopt(ctx, reconciler, one)
			errs <- err
		}()
	}
	if err := errors.Join(<-errs, <-errs); err != nil {
		t.Fatal(err)
	}
	x, _ := b.At(two)
	y, _ := b.At(two.Next())
	if x == nil || y == nil || x.ID == y.ID || x.ID != foreignID && y.ID != foreignID {
		t.Errorf("they are %+v and %+v", x, y)
	}
}

// An address that a caller was offered and that is adopted meanwhile is taken.
func TestAnAdoptedAddressIsOfferedNoMore(t *testing.T) {
	b := Open(t)
	c, err := b.Pick(b.Pools()[0].UID, Policy)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Adopt(ctx, reconciler, adoption(c.Addr, 0, "")); err != nil {
		t.Fatal(err)
	}
	_, err = b.Reserve(ctx, allocator, netdb.Reservation{Candidate: c, Sandbox: "b", UID: "b", Interface: "eth0", Attempt: 1, BindWithin: time.Minute})
	wantErr(t, err, ipam.ErrTaken)
	b.Drop(c)
	if next := Reserve(t, b, "b"); next.Addr == c.Addr {
		t.Error("it was given to another sandbox")
	}
}

// A candidate that was free when it was picked is refused when it cools by
// then: its cooldown has just begun.
func TestACandidateThatCoolsByNowIsTaken(t *testing.T) {
	b := Open(t)
	c, err := b.Pick(b.Pools()[0].UID, Policy)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Quarantine(ctx, operator, c.Addr, evidence); err != nil {
		t.Fatal(err)
	}
	if _, err := Clear(b, c.Addr); err != nil {
		t.Fatal(err)
	}
	_, err = b.Reserve(ctx, allocator, netdb.Reservation{Candidate: c, Sandbox: "b", UID: "b", Interface: "eth0", Attempt: 1, BindWithin: time.Minute})
	wantErr(t, err, ipam.ErrTaken)
}
