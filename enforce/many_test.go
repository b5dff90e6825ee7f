package enforce

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"testing"
	"time"

	"github.com/google/nftables"

	"github.com/ipamd/ipamd/internal/nstest"
	"github.com/ipamd/ipamd/ipam"
)

// a crowd is a book and a bridge in memory, of any size.
type crowd struct {
	one
	byID   map[string]*ipam.Lease
	byName map[string]Port
}

func (w *crowd) Lease(id string) (*ipam.Lease, error)        { return w.byID[id], nil }
func (w *crowd) PortNamed(name string) (Port, bool)          { p, is := w.byName[name]; return p, is }
func (w *crowd) Settle(context.Context, ...netip.Addr) error { return nil }

func (w *crowd) bind() string {
	n := len(w.leases)
	p := Port{Index: 100_000 + n, Name: fmt.Sprint("port", n), Bridge: "rt0"}
	l := &ipam.Lease{ID: p.Name, Addr: netip.AddrFrom4([4]byte{10, byte(n >> 16), byte(n >> 8), byte(n)}), State: ipam.Bound, Rev: int64(n + 1),
		HostInterface: p.Name, MAC: fmt.Sprintf("02:00:00:%02x:%02x:%02x", n>>16, n>>8&255, n&255)}
	w.ports, w.leases = append(w.ports, p), append(w.leases, l)
	w.byName[p.Name], w.byID[l.ID] = p, l
	return l.ID
}

// E6: beside fifty thousand elements a bind changes in the kernel what it changes beside none,
// in as many transactions, as the kernel's own news show. How long it takes is for `make bench`.
func TestE6ABindDoesNotDependOnHowMany(t *testing.T) {
	const elements = 50_000
	changes := func(leases int) string {
		w := &crowd{byID: map[string]*ipam.Lease{}, byName: map[string]Port{}}
		for range leases {
			w.bind()
		}
		ns := nstest.New(t)
		var k *Keeper
		var err error
		ns.Do(func() {
			k, err = Open(t.Context(), Config{Policy: Policy{Mode: Enforce}, Book: w, Kernel: w, Boot: "boot", Every: time.Hour, Log: slog.New(slog.DiscardHandler)})
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = k.Close() })
		if err := k.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n := k.Status().Elements; n < 6*leases {
			t.Fatalf("%d elements for %d leases", n, leases)
		}
		var conn *nftables.Conn
		ns.Do(func() { conn, err = nftables.New(nftables.AsLasting()) })
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.CloseLasting() }()
		news := nftables.NewMonitor(nftables.WithMonitorEventBuffer(100))
		monitored, err := conn.AddGenerationalMonitor(news)
		if err != nil {
			t.Fatal(err)
		}
		const binds = 3
		for range binds {
			if err := k.Ensure(t.Context(), w.bind()); err != nil {
				t.Fatal(err)
			}
		}
		ns.Exec("nft", "add table ip over")
		transactions, count := 0, make(map[nftables.MonitorEventType]int)
		for of := range monitored {
			if table, is := of.Changes[0].Data.(*nftables.Table); is && table.Name == "over" {
				break
			}
			transactions++
			for _, c := range of.Changes {
				if c.Error != nil {
					t.Fatal(c.Error)
				}
				count[c.Type]++
			}
		}
		if count[nftables.MonitorEventTypeNewSetElem] < binds {
			t.Fatalf("no more than this was changed: %v", count)
		}
		return fmt.Sprintf("%d transactions, %v by type of message", transactions, count)
	}
	few, many := changes(0), changes(elements/6+1)
	if few != many {
		t.Errorf("a bind beside %d elements changes %s, and beside none %s", elements, many, few)
	}
	t.Log(few)
}
