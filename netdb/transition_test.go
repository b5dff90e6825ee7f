package netdb

import (
	"context"
	"errors"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ipamd/ipamd/ipam"
)

func openForTest(t *testing.T) *Book {
	t.Helper()
	b, err := Open(filepath.Join(t.TempDir(), "book.db"), Options{
		Synchronous: "full", QuarantineShare: 0.25, Tombstone: time.Hour, KeepChanges: 1000, KeepFor: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	return b
}

// Every (actor, state, state) is tried against the table of moves and against
// the schema's CHECK: they must say the same.
func TestTheTableOfMovesAgreesWithTheSchema(t *testing.T) {
	b := openForTest(t)
	states := append([]ipam.State{ipam.Free}, ipam.States()...)
	for _, by := range append(ipam.Actors(), "nobody") {
		for _, from := range states {
			for _, to := range states {
				c := ipam.Change{Rev: 1, At: ipam.Now(), Subject: ipam.OfLease, Addr: netip.MustParseAddr("10.8.64.2"), From: from, To: to,
					Who: ipam.Who{Actor: by, Reason: "test"}}
				inCode := ipam.Legal(by, from, to) == nil
				if _, err := b.store.Conn.ExecContext(context.Background(), `SAVEPOINT one`); err != nil {
					t.Fatal(err)
				}
				_, err := b.store.sql.insertChange.Exec(changeRow(&c, nil, 0)...)
				if inSchema := err == nil; inCode != inSchema {
					t.Errorf("%s: %s to %s: code says %v, the schema says %v (%v)", by, from, to, inCode, inSchema, err)
				}
				if _, err := b.store.Conn.ExecContext(context.Background(), `ROLLBACK TO one; RELEASE one`); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}

// An id is one row's: a second is not staged, and one that the file has is reported and
// its address not given, whatever the table itself allows.
func TestAnIDIsOneRows(t *testing.T) {
	b := openForTest(t)
	ctx := context.Background()
	prefix := netip.MustParsePrefix("10.8.64.0/29")
	pool, err := b.EnsurePool(ctx, ipam.Who{Actor: ipam.ByOperator, Reason: "test"}, ipam.PoolSpec{Name: "default", Prefix: prefix, Gateway: ipam.FirstHost(prefix), Bridge: "rt0"})
	if err != nil {
		t.Fatal(err)
	}
	row := func(addr, uid, id string) ipam.Lease {
		return ipam.Lease{Addr: netip.MustParseAddr(addr), ID: id, PoolUID: pool.UID, Pool: pool.Name, State: ipam.Reserved,
			Sandbox: uid, UID: uid, Interface: "eth0", Attempt: 1, BindWithin: time.Minute}
	}
	id := newID()
	for _, batch := range [][]ipam.Lease{
		{row("10.8.64.2", "a", newID()), row("10.8.64.3", "b", id)},
		{row("10.8.64.4", "c", id)},                                 // as one that is committed
		{row("10.8.64.4", "c", newID()), row("10.8.64.5", "d", id)}, // behind one that is well
	} {
		err := b.writer.update(ctx, func(tx *tx) error {
			for _, l := range batch {
				if _, err := tx.move(ipam.Who{Actor: ipam.ByAllocator, Reason: "test"}, nil, l, nil); err != nil {
					return err
				}
			}
			return nil
		})
		if second := batch[0].UID == "c"; second != errors.Is(err, ipam.ErrTaken) {
			t.Errorf("%s: %v", batch[0].UID, err)
		}
	}
	if leases, _ := b.Leases(); len(leases) != 2 {
		t.Fatalf("%d rows", len(leases))
	}
	if _, err := b.store.Conn.ExecContext(ctx, `UPDATE leases SET id = ?1 WHERE sandbox = 'a'`, id); err != nil {
		t.Fatal(err)
	}
	x, err := b.store.readIndex(ctx, b.store.Conn)
	three := netip.MustParseAddr("10.8.64.3")
	if err != nil {
		t.Fatal(err)
	}
	broken := x.Unreadable()
	leases, _ := x.Leases()
	if free := x.Offers(ipam.Now).Upcoming(pool.UID, 256, ipam.Policy{Cooldown: 1 << 62, CooldownMin: 1 << 62}); len(broken) != 1 || !strings.Contains(broken[0].Reason, id) || slices.Contains(free, three) || len(leases) != 1 {
		t.Errorf("%+v, %d leases, free: %v", broken, len(leases), free)
	}
}
