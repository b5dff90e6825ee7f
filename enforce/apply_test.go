package enforce

import (
	"context"
	"log/slog"
	"net/netip"
	"testing"
	"time"

	"github.com/ipamd/ipamd/internal/nstest"
	"github.com/ipamd/ipamd/netdb"
	"github.com/ipamd/ipamd/nft"
)

// one is a book and a bridge whose ports each have a lease, as far as they are bound.
type one struct {
	leases []*netdb.Lease
	ports  []Port
}

func (w *one) Epoch() string                                            { return "epoch" }
func (w *one) Rev() int64                                               { return int64(len(w.leases)) }
func (w *one) Leases() ([]*netdb.Lease, int64)                          { return w.leases, w.Rev() }
func (w *one) Pools() []*netdb.Pool                                     { return nil }
func (w *one) Changed() <-chan struct{}                                 { return nil }
func (w *one) Ports() []Port                                            { return w.ports }
func (w *one) Settle(context.Context, ...netip.Addr) error              { return nil }
func (w *one) PortsInto(context.Context, string, uint64) ([]int, error) { return nil, nil }
func (w *one) SetGroups(context.Context, int, bool) error               { return nil }
func (w *one) Bridges() []Bridge                                        { return nil }
func (w *one) Unlearn(context.Context, int) error                       { return nil }
func (w *one) IsPort(context.Context, string, int) (bool, error)        { return false, nil }
func (w *one) LearnNoGroups(context.Context, int) error                 { return nil }

func (w *one) PortNamed(name string) (Port, bool) {
	for _, p := range w.ports {
		if p.Name == name {
			return p, true
		}
	}
	return Port{}, false
}

func (w *one) Lease(id string) (*netdb.Lease, error) {
	for _, l := range w.leases {
		if l.ID == id {
			return l, nil
		}
	}
	return nil, netdb.ErrNotFound
}

func (w *one) bind(name string) string {
	n := len(w.leases)
	addr := netip.AddrFrom4([4]byte{10, 8, 0, byte(n + 2)})
	w.ports = append(w.ports, Port{Index: 70_000 + n, Name: name, Bridge: "rt0"})
	w.leases = append(w.leases, &netdb.Lease{ID: name, Addr: addr, State: netdb.Bound, Rev: int64(n + 1), HostInterface: name, MAC: "02:00:00:00:00:01"})
	return name
}

// What a bind adds to a table whose news were lost is no repair, and what others took from
// it is one, also where a bind comes upon it first.
func TestABindIsNoRepair(t *testing.T) {
	t.Parallel()
	w, ns := new(one), nstest.New(t)
	var k *Keeper
	var other *nft.Conn
	var err, otherErr error
	ns.Do(func() {
		k, err = Open(t.Context(), Config{Policy: Policy{Mode: Enforce}, Book: w, Kernel: w, Boot: "boot", Every: time.Hour, Log: slog.New(slog.DiscardHandler)})
		other, otherErr = nft.Open()
	})
	if err != nil || otherErr != nil {
		t.Fatal(err, otherErr)
	}
	t.Cleanup(func() { _ = k.Close(); _ = other.Close() })
	hold := func(name string, repairs uint64) {
		t.Helper()
		if err := k.Hold(t.Context(), w.bind(name)); err != nil {
			t.Fatal(err)
		}
		if s := k.Status(); !s.Held || s.Repairs != repairs {
			t.Fatalf("after the bind of %s: held %t, %d repairs, not %d", name, s.Held, s.Repairs, repairs)
		}
		differ, err := k.differences(t.Context())
		if err != nil || len(differ) > 0 {
			t.Fatalf("after the bind of %s: %v %v", name, differ, err)
		}
	}
	w.bind("first")
	if err := k.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	hold("known", 0)
	k.touched.Store(true) // by the reading of every so often, or news that were lost
	hold("doubted", 0)
	k.held = false // a write of ours failed
	hold("failed", 0)
	if err := other.Remove(t.Context(), nft.Bridge, TableName); err != nil {
		t.Fatal(err)
	}
	hold("unheard", 1) // no news of it was read
	if err := other.Remove(t.Context(), nft.Bridge, TableName); err != nil {
		t.Fatal(err)
	}
	k.touched.Store(true)
	hold("heard", 2)
}
