package enforce

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/ipamd/ipamd/internal/nstest"
	"github.com/ipamd/ipamd/netdb"
)

// a crowd is a book and a bridge in memory, of any size.
type crowd struct {
	one
	byID   map[string]*netdb.Lease
	byName map[string]Port
}

func (w *crowd) Lease(id string) (*netdb.Lease, error)       { return w.byID[id], nil }
func (w *crowd) PortNamed(name string) (Port, bool)          { p, is := w.byName[name]; return p, is }
func (w *crowd) Settle(context.Context, ...netip.Addr) error { return nil }

func (w *crowd) bind() string {
	n := len(w.leases)
	p := Port{Index: 100_000 + n, Name: fmt.Sprint("port", n), Bridge: "rt0"}
	l := &netdb.Lease{ID: p.Name, Addr: netip.AddrFrom4([4]byte{10, byte(n >> 16), byte(n >> 8), byte(n)}), State: netdb.Bound, Rev: int64(n + 1),
		HostInterface: p.Name, MAC: fmt.Sprintf("02:00:00:%02x:%02x:%02x", n>>16, n>>8&255, n&255)}
	w.ports, w.leases = append(w.ports, p), append(w.leases, l)
	w.byName[p.Name], w.byID[l.ID] = p, l
	return l.ID
}

// TestE6ABindDoesNotDependOnHowMany: beside fifty thousand elements the rules of one bind take
// hardly longer than beside none, bind by bind on both.
func TestE6ABindDoesNotDependOnHowMany(t *testing.T) {
	ns := nstest.New(t)
	other := nstest.New(t)
	keeper := func(in *nstest.NS, leases int) (*Keeper, *crowd) {
		w := &crowd{byID: map[string]*netdb.Lease{}, byName: map[string]Port{}}
		for range leases {
			w.bind()
		}
		var k *Keeper
		var err error
		in.Do(func() {
			k, err = Open(t.Context(), Config{Policy: Policy{Mode: Enforce}, Book: w, Kernel: w, Boot: "boot", Every: time.Hour, Log: slog.New(slog.DiscardHandler)})
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = k.Close() })
		if err := k.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		return k, w
	}
	const elements, binds = 50_000, 300
	many, manys := keeper(ns, elements/6+1)
	few, fews := keeper(other, 0)
	if n := many.Status().Elements; n < elements {
		t.Fatalf("%d elements", n)
	}
	var full, empty []time.Duration
	hold := func(k *Keeper, id string) time.Duration {
		began := time.Now()
		if err := k.Hold(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		return time.Since(began)
	}
	for range binds {
		full, empty = append(full, hold(many, manys.bind())), append(empty, hold(few, fews.bind()))
	}
	slices.Sort(full)
	slices.Sort(empty)
	// The lower quarter: what else the machine does comes on top of either.
	if f, e := full[binds/4], empty[binds/4]; 5*f > 8*e {
		t.Errorf("the rules of a bind take %v beside %d elements and %v beside none", f, elements, e)
	} else {
		t.Logf("%v beside %d elements, %v beside none", f, elements, e)
	}
}
