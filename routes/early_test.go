package routes

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"

	"github.com/ipamd/ipamd/api"
)

// pushOf pushes to a table of another epoch.
func pushOf(t testing.TB, table *Table, epoch string, r Route) {
	t.Helper()
	if newer, err := table.Push(epoch, r); newer || err != nil {
		t.Fatalf("a push of epoch %s: newer %v, %v", epoch, newer, err)
	}
}

// next lists the epoch "next", of which the news of a waits.
func next(t testing.TB, table *Table) {
	t.Helper()
	if err := table.Replace(List{Epoch: "next", Revision: 3}); err != nil {
		t.Fatal(err)
	}
	at(t, table, "a", "10.8.0.5")
	if len(table.early.of) != 0 || table.early.routes != 0 {
		t.Errorf("%d epochs wait with %d routes", len(table.early.of), table.early.routes)
	}
}

// T7: a peer that lags pushes a past epoch without end: nothing of it is kept, and the next
// epoch's news is.
func TestT7PushesOfAPastEpoch(t *testing.T) {
	table := listed(t, 5)
	for _, now := range []string{"e2", "e3"} {
		if err := table.Replace(List{Epoch: now, Revision: 5}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range mostAhead + 1 {
		r := route("z", "10.8.0.5", api.Bound, int64(i+1))
		pushOf(t, table, []string{epoch, "e2"}[i%2], r)
	}
	if len(table.early.of) != 0 {
		t.Errorf("%d epochs wait", len(table.early.of))
	}
	pushOf(t, table, "next", route("a", "10.8.0.5", api.Bound, 7))
	next(t, table)
	// The daemon's book of before is back: its news counts again.
	pushOf(t, table, epoch, route("z", "10.8.0.9", api.Bound, 9))
	if err := table.Replace(List{Epoch: epoch, Revision: 8}); err != nil {
		t.Fatal(err)
	}
	at(t, table, "z", "")
	push(t, table, route("z", "10.8.0.9", api.Bound, 9), true)
	pushOf(t, table, "next", route("a", "10.8.0.5", api.Bound, 70))
	if len(table.early.of) != 0 {
		t.Errorf("%d epochs wait", len(table.early.of))
	}
}

// Of an epoch that waits the last of each address is kept, whatever came first, and over a list
// of the present one.
func TestOneEarlyPushAnAddress(t *testing.T) {
	table := listed(t, 5)
	for i := range mostAhead + 2 {
		pushOf(t, table, "next", route("z", "10.8.0.5", api.Bound, int64(8+i%100)))
	}
	pushOf(t, table, "next", route("a", "10.8.0.5", api.Bound, 200))
	pushOf(t, table, "next", route("z", "10.8.0.5", api.Bound, 150))
	if table.early.routes != 1 {
		t.Errorf("%d pushes of one address are kept", table.early.routes)
	}
	if err := table.Replace(List{Epoch: epoch, Revision: 6}); err != nil {
		t.Fatal(err)
	}
	next(t, table)
}

// Floods of epochs that nothing is known of: what waits is bounded, and the next epoch's news
// comes in, before each flood and behind it.
func TestUnknownEpochsKeepNoOtherOut(t *testing.T) {
	a := route("a", "10.8.0.5", api.Bound, 7)
	large := func(t *testing.T, table *Table, epoch string) {
		addr, full := netip.MustParseAddr("10.0.0.0"), 0
		for range mostAhead + 100 {
			addr = addr.Next()
			r := route("z", "10.8.0.6", api.Bound, 7)
			r.Addr = addr
			if _, err := table.Push(epoch, r); errors.Is(err, ErrFull) {
				full++
			} else if err != nil {
				t.Fatal(err)
			}
		}
		if full < 100 {
			t.Errorf("%d pushes are refused", full)
		}
	}
	for name, flood := range map[string]func(*testing.T, *Table){
		"a large one": func(t *testing.T, table *Table) { large(t, table, "x") },
		"two large ones": func(t *testing.T, table *Table) {
			large(t, table, "x")
			large(t, table, "y")
		},
		"many small ones": func(t *testing.T, table *Table) {
			for i := range 8 * mostEpochs {
				pushOf(t, table, fmt.Sprint("x", i), a)
				if i%100 == 0 {
					pushOf(t, table, "next", a) // the peers that are right go on as well
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			for _, behind := range []bool{false, true} {
				table := listed(t, 5)
				if !behind {
					pushOf(t, table, "next", a)
				}
				flood(t, table)
				waits := 0
				for _, w := range table.early.of {
					waits += len(w.routes)
				}
				if n := len(table.early.of); n > mostEpochs || waits > mostAhead || table.early.routes != waits {
					t.Errorf("%d epochs wait with %d routes, of which %d are counted", n, waits, table.early.routes)
				}
				if behind {
					pushOf(t, table, "next", a)
				}
				next(t, table)
			}
		})
	}
}
