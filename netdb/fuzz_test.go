package netdb

import (
	"context"
	"database/sql"
	"net/netip"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/ipamd/ipamd/ipam"
)

// FuzzRow is L10 with any bytes in any column: the row is read, and written
// again it is read as the same, or it is reported with a reason. It never
// keeps the book from being read, and no address that it may mean is free.
//
// The rows are never committed: a sync each would leave little time to try.
func FuzzRow(f *testing.F) {
	ctx := context.Background()
	b, err := Open(filepath.Join(f.TempDir(), "book.db"), Options{Synchronous: "full", QuarantineShare: 0.25,
		Tombstone: time.Hour, KeepChanges: 1000, KeepFor: time.Hour})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() {
		if err := b.Close(); err != nil {
			f.Error(err)
		}
	})
	prefix := netip.MustParsePrefix("10.8.64.0/24")
	pool, err := b.EnsurePool(ctx, ipam.Who{Actor: ipam.ByOperator, Peer: "test", Reason: "test"},
		ipam.PoolSpec{Name: "default", Prefix: prefix, Gateway: ipam.FirstHost(prefix), Bridge: "rt0"})
	if err != nil {
		f.Fatal(err)
	}
	exec := func(t testing.TB, statement string, args ...any) {
		t.Helper()
		if _, err := b.store.Conn.ExecContext(ctx, statement, args...); err != nil {
			t.Fatal(err)
		}
	}
	exec(f, `PRAGMA ignore_check_constraints = 1`)
	exec(f, `PRAGMA foreign_keys = 0`)

	good := rawRow{ip: "10.8.64.2", key: key(netip.MustParseAddr("10.8.64.2")), id: "0193f2a5-7c1e-7a44-9d0b-3a6a5a0c9b21",
		state: "bound", sandbox: "web-1", uid: "web-1", iface: "eth0", containers: `[{"namespace":"d","id":"c"}]`, netns: "/n",
		host: "veth1", mac: "02:00:00:00:00:01", labels: `{"k":"v"}`, reason: "bound",
		attempt: 1, rev: 3, wall: 1_750_000_000_000_000_000, boot: 5, within: 60_000_000_000, cut: "own"}
	for _, wrong := range []func(*rawRow){
		func(*rawRow) {},
		func(r *rawRow) { r.state, r.netns, r.host, r.mac, r.cut = "reserved", "", "", "", "early" },
		func(r *rawRow) { r.state = "paused" },
		func(r *rawRow) { r.state, r.evidence = "releasing", `[{"note":"n"}]` },
		func(r *rawRow) { r.state, r.sandbox, r.uid, r.containers, r.labels = "cooling", "", "", "", "" },
		func(r *rawRow) {
			r.state, r.reason, r.labels, r.containers = "quarantined", "set_aside", "null", "null"
		},
		func(r *rawRow) { r.state = "dreaming" },
		func(r *rawRow) { r.ip = "10.8.64.999" },
		func(r *rawRow) { r.ip = "10.8.64.02" },
		func(r *rawRow) { r.ip = "::ffff:10.8.64.2" },
		func(r *rawRow) { r.ip = "10.8.64.3" },
		func(r *rawRow) { r.ip, r.key = "10.8.64.255", key(netip.MustParseAddr("10.8.64.255")) },
		func(r *rawRow) { r.ip, r.key = "10.9.0.1", key(netip.MustParseAddr("10.9.0.1")) },
		func(r *rawRow) { r.ip, r.key = "fe80::1%eth0", key(netip.MustParseAddr("fe80::1")) },
		func(r *rawRow) { r.key = []byte{} },
		func(r *rawRow) { r.key = []byte{10, 8, 64, 2} },
		func(r *rawRow) { r.pool = "another" },
		func(r *rawRow) { r.cut = "short" },
		func(r *rawRow) { // a delegated prefix
			r.ip, r.key, r.length, r.last = "10.8.64.16/28", key(netip.MustParseAddr("10.8.64.16")), 28, key(netip.MustParseAddr("10.8.64.31"))
		},
		func(r *rawRow) { r.ip, r.length, r.last = "10.8.64.2/31", 30, key(netip.MustParseAddr("10.8.64.3")) },
		func(r *rawRow) { r.length, r.last = 28, key(netip.MustParseAddr("10.8.64.15")) },
		func(r *rawRow) { r.ip = "10.8.64.2/31" },
		func(r *rawRow) { r.ip, r.length, r.last = "10.8.64.2/99", 99, []byte{1} },
		func(r *rawRow) { r.containers = `{"a":1}` },
		func(r *rawRow) { r.labels = `[1]` },
		func(r *rawRow) { r.evidence = `"` },
		func(r *rawRow) { r.sandbox, r.uid, r.netns = "\xff", "\x00", "\n" },
		func(r *rawRow) { r.wall, r.boot, r.within, r.rev, r.attempt = -1<<63, 1<<62, -1, 1<<62, -1 },
	} {
		r := good
		wrong(&r)
		f.Add(r.ip, r.key, r.pool, r.id, r.state, r.sandbox, r.uid, r.iface, r.containers, r.netns, r.host, r.mac, r.labels, r.evidence,
			r.reason, r.attempt, r.rev, r.wall, r.boot, r.within, r.cut, r.length, r.last)
	}
	f.Fuzz(func(t *testing.T, ip string, key []byte, poolUID, id, state, sandbox, uid, iface, containers, netns, host, mac, labels, evidence, reason string,
		attempt, rev, wall, boot, within int64, cut string, length int64, lastIP []byte) {
		if poolUID == "" {
			poolUID = pool.UID
		}
		if key == nil {
			key = []byte{}
		}
		var bits any
		if length != 0 {
			bits = length
		}
		text := func(s string) any { return append([]byte{}, s...) } // a Go string would have to be UTF-8
		const row = `INSERT INTO leases (` + leaseColumns + `) VALUES (?,CAST(? AS TEXT),CAST(? AS TEXT),
			CAST(? AS TEXT),?,?,CAST(? AS TEXT),CAST(? AS TEXT),CAST(? AS TEXT),CAST(? AS TEXT),?,?,?,?,CAST(? AS TEXT),?,?,CAST(? AS TEXT),
			?,CAST(? AS TEXT),CAST(? AS TEXT),CAST(? AS TEXT),CAST(? AS TEXT),CAST(? AS TEXT),CAST(? AS TEXT),CAST(? AS TEXT),CAST(? AS TEXT),CAST(? AS TEXT),CAST(? AS TEXT),CAST(? AS TEXT))`
		exec(t, `BEGIN IMMEDIATE`)
		defer exec(t, `ROLLBACK`)
		var last any
		if bits != nil {
			last = lastIP
		}
		exec(t, row, key, text(ip), text(poolUID), text(id), bits, last, text(state), text(sandbox), text(uid), text(iface), attempt, rev,
			wall, boot, text(reason), wall, boot, text(reason), within, text(containers), text(netns), text(host), text(mac),
			text(labels), text(labels), text(evidence), text(reason), text(cut), text(reason), text(labels))

		x, err := b.store.readIndex(ctx, b.store.Conn)
		if err != nil {
			t.Fatalf("one row keeps the book from being read: %v", err)
		}
		leases, _ := x.Leases()
		broken := x.Unreadable()
		if len(leases)+len(broken) != 1 {
			t.Fatalf("one row became %d leases and %d reports", len(leases), len(broken))
		}
		free := x.Offers(ipam.Now).Upcoming(pool.UID, 256, ipam.Policy{Cooldown: 1 << 62, CooldownMin: 1 << 62}) // all there are, and none that cools
		for _, r := range (naming{ip: key, text: ip, bits: sql.NullInt64{Int64: length, Valid: length != 0}, last: lastIP}).ranges() {
			if slices.ContainsFunc(free, r.Contains) {
				t.Fatalf("an address of %v is free, and a row names it by %q, %x, %d, %x", r, ip, key, length, lastIP)
			}
		}
		for _, a := range (naming{ip: key, text: ip}).addrs() {
			if slices.Contains(free, a) {
				t.Fatalf("%v is free, and a row names it by %q or %x", a, ip, key)
			}
		}
		if len(broken) == 1 {
			if broken[0].Reason == "" {
				t.Fatal("reported without a reason")
			}
			return
		}
		for _, l := range leases {
			exec(t, `DELETE FROM leases`)
			exec(t, insertLease, leaseRow(l)...)
			again, err := b.store.readIndex(ctx, b.store.Conn)
			if err != nil {
				t.Fatal(err)
			}
			as, read := again.At(l.Addr)
			if !read {
				t.Fatalf("read, written, and not read again: %+v, %+v", l, again.Unreadable())
			}
			same := []cmp.Option{cmpopts.EquateEmpty(), cmp.Comparer(func(a, b netip.Addr) bool { return a == b })}
			if d := cmp.Diff(l, as, same...); d != "" {
				t.Fatalf("read, written and read again (-first +again):\n%s", d)
			}
		}
	})
}

// A rawRow is a lease as the file may have it. Its pool is the only one when
// it names none.
type rawRow struct {
	ip                                                     string
	key                                                    []byte
	pool, id, state, sandbox, uid, iface                   string
	containers, netns, host, mac, labels, evidence, reason string
	attempt, rev, wall, boot, within, length               int64
	last                                                   []byte
	cut                                                    string
}
