package netdb_test

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ipamd/ipamd/internal/faultfs"
	"github.com/ipamd/ipamd/internal/realtest"
	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/migrations"
	"github.com/ipamd/ipamd/netdb"
	. "github.com/ipamd/ipamd/netdb/netdbtest"
	"github.com/ipamd/ipamd/netdb/salvage"
)

// bookOf010 is a book that ipamd 0.1.0 made and had open when it was killed: its file, which
// is as good as empty, its log and its mark. The daemon had pools default (10.8.64.0/27 and
// fd00:8::/64) and second (10.9.0.0/29, without .5), and was asked for the leases of
// liveIn010 by ipamctl.
func bookOf010(t *testing.T) faultfs.Image {
	t.Helper()
	f, err := os.Open("testdata/book-0.1.0.tar.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	image := make(faultfs.Image)
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if err == io.EOF {
			return image
		}
		if err == nil {
			image[h.Name], err = io.ReadAll(r)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

const liveIn010 = `10.8.64.2 reserved web-a
10.8.64.3 reserved web-b
10.8.64.4 reserved web-c
10.8.64.5 reserved web-d
10.8.64.6 reserved dual-1
10.8.64.7 bound held-1
10.8.64.9 cooling cooled-1
10.8.64.20 quarantined 
10.9.0.2 reserved other-1
fd00:8::2 reserved dual-1
`

func liveIn(b *netdb.Book) string {
	leases, _ := b.Leases()
	var s strings.Builder
	for _, l := range leases {
		fmt.Fprintln(&s, l.Addr, l.State, l.Sandbox)
	}
	return s.String()
}

// L14: a book of 0.1.0 with live leases opens as it is: each lease keeps its id and its
// revision, and each pool its uid and generation; and it goes on.
func TestL14ABookOf010(t *testing.T) {
	dir := t.TempDir()
	if err := lay(bookOf010(t), dir); err != nil {
		t.Fatal(err)
	}
	b := OpenAt(t, filepath.Join(dir, "book.db"), Options())
	if live := liveIn(b); live != liveIn010 {
		t.Fatalf("it has\n%s", live)
	}
	held, err := b.Lease("01a20594-fa08-736c-9705-4b69dff78d7e")
	if err != nil || held.Addr != addr("10.8.64.7") || held.HostInterface != "veth1" || held.Rev != 12 || b.Info().RunnerUID != "runner-of-0.1.0" {
		t.Errorf("%+v, %v", held, err)
	}
	for _, p := range b.Pools() {
		if p.Generation != 1 || p.State != ipam.PoolActive {
			t.Errorf("%+v", p)
		}
		if out := set(t, b, netdb.PoolChange{Spec: p.PoolSpec}); out.Changed {
			t.Error(shown(out))
		}
	}
	if l := Reserve(t, b, "next"); l.Addr != addr("10.8.64.10") {
		t.Error(l.Addr)
	}
	if _, err := b.Release(ctx, client, held.ID, "", held.Rev); err != nil {
		t.Error(err)
	}
	if w := b.Withheld(); len(w) > 0 {
		t.Error(w)
	}
}

// L14, L16: the power goes behind every operation of the first opening of a book of 0.1.0,
// and of the removal of a pool, by force, and its making again. Each start finds the book,
// whole, as it was before or after the change that was under way.
func TestL16PowerLossInTheUpgradeFrom010AndInAPurge(t *testing.T) {
	realtest.Long(t)
	l := unborn(t, "full")
	t.Parallel()
	put(t, l.disk, bookOf010(t))
	l.memos = nil
	began := l.disk.Len()
	b := OpenAt(t, l.path(), l.opts)
	note := func() { l.memos = append(l.memos, memo{l.disk.Len(), b.Rev(), stateOf(b)}) }
	note()
	i := slices.IndexFunc(b.Pools(), func(p *ipam.Pool) bool { return p.Name == "second" })
	second := b.Pools()[i]
	remove(t, b, second.UID, true)
	note()
	set(t, b, netdb.PoolChange{Spec: second.PoolSpec})
	note()
	Close(t, b)
	met := make(map[int]int)
	v := l.cutAt(t, spent, func(n int, _ faultfs.Op) bool { return n >= began }, func(in string, image faultfs.Image, acked int) (lost bool, err error) {
		dir := filepath.Join(in, "disk")
		if err := errors.Join(os.Mkdir(dir, 0o700), lay(image, dir)); err != nil {
			return false, err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
		b, err := netdb.Open(filepath.Join(dir, "book.db"), l.opts)
		if err != nil {
			return false, err
		}
		defer func() { err = errors.Join(err, b.Close()) }()
		if found, err := b.Check(ctx); err != nil || len(found) > 0 {
			return false, fmt.Errorf("%v, %w", found, err)
		}
		is := slices.IndexFunc(l.memos, func(m memo) bool { return m.leases == stateOf(b) })
		if is < 0 {
			return false, fmt.Errorf("it is in none of its states:\n%s", stateOf(b))
		}
		met[is]++
		return is < acked-1, nil
	})
	if v.lost > 0 || len(met) != len(l.memos) || v.random < leastRandom {
		t.Errorf("%d of %d disks lost what was acknowledged; %d states were met", v.lost, v.images, len(met))
	}
}

// stateOf is all that a book says of its leases, its pools and what it withholds.
func stateOf(b *netdb.Book) string {
	s := liveIn(b)
	for _, p := range b.Pools() {
		s += fmt.Sprintln(p.Name, p.UID, p.Generation, p.Prefix, p.State)
	}
	for _, w := range b.Withheld() {
		s += fmt.Sprintln(w.Addr, w.State, w.LeaseID)
	}
	return s
}

// A pool costs what its leases do, however large it is.
func TestALargePoolCostsNoMore(t *testing.T) {
	const leases = 200
	entries := make(map[string]int)
	for _, prefix := range []string{"10.8.64.0/24", "10.0.0.0/8", "fd00:8::/64"} {
		b := OpenAt(t, filepath.Join(t.TempDir(), "book.db"), Options())
		p := Pool(t, b, "default", prefix)
		var last *ipam.Lease
		for i := range leases {
			last = Reserve(t, b, fmt.Sprint(i))
		}
		Cool(t, b, last)
		entries[prefix] = netdb.Entries(b, p.UID)
	}
	if n := entries["10.8.64.0/24"]; n < leases || entries["10.0.0.0/8"] != n || entries["fd00:8::/64"] != n {
		t.Errorf("entries in memory: %v", entries)
	}
}

// L14: a book of each schema before this one opens with its leases as they are, and what it
// withholds is withheld: on a bridge that is not recorded.
func TestL14ABookOfEachSchema(t *testing.T) {
	all := migrations.All()
	for version := 1; version < len(all); version++ {
		dir := t.TempDir()
		if err := lay(bookOf010(t), dir); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, "book.db")
		for _, m := range all[1:version] {
			raw(t, path, m.SQL)
		}
		raw(t, path, fmt.Sprintf(`PRAGMA user_version = %d`, version))
		if version > 1 { // as a removed pool has left it
			raw(t, path, `INSERT INTO withheld (ip, address, pool_uid, pool, lease_id, state, sandbox, uid, interface, rev,
				since_wall, since_boot, since_boot_id, evidence, hold)
				VALUES (x'00000000000000000000ffff0a0a0002', '10.10.0.2', 'u', 'gone', 'i', 'quarantined', 's', 's', 'eth0', 1, 1, 1, 'b', '[{}]', '')`)
		}
		if version > 4 { // as an owner has paused it
			raw(t, path, `INSERT INTO sleeps (lease_id, rev, mode, do_pause, policy, flight) SELECT id, rev, 'freeze', 0, '', '' FROM leases WHERE state = 'bound' LIMIT 1`)
			if s, err := salvage.Book(path); err != nil || len(s.Sleeps) != 1 || len(s.Problems) > 0 {
				t.Errorf("of schema %d: %+v, %v", version, s, err)
			}
		}
		b := OpenAt(t, path, Options())
		if s := b.Sleeps(); version > 4 && (len(s) != 1 || !s[0].Still) {
			t.Errorf("of schema %d: %+v", version, s)
		}
		if live := liveIn(b); live != liveIn010 || b.Info().Schema != len(all) {
			t.Fatalf("of schema %d: it has\n%s", version, live)
		}
		if version > 1 {
			p := Pool(t, b, "again", "10.10.0.0/29")
			if l, ok := b.At(addr("10.10.0.2")); !ok || l.PoolUID != p.UID || !strings.Contains(l.Hold, "not recorded") {
				t.Errorf("of schema %d: %+v", version, l)
			}
		}
		Check(t, b)
		Close(t, b)
	}
}

// A book of the last build before 0.1.0 is refused with what to do, not called damaged, and is
// not changed; stopped or killed, by a start and by a look. What it held is salvaged.
func TestABookOfBeforeTheReleaseIsRefusedAndSalvaged(t *testing.T) {
	path := filepath.Join(t.TempDir(), "book.db")
	_, leases := Busy(t, filepath.Dir(path))
	BeforeRelease(t, path)
	db, conn := rawConn(t, path)
	if _, err := conn.ExecContext(ctx, `UPDATE book SET boot_id = 'another'`); err != nil { // in the log alone
		t.Fatal(err)
	}
	log := killed(t, path)
	if err := errors.Join(conn.Close(), db.Close()); err != nil {
		t.Fatal(err)
	}
	for name, path := range map[string]string{"stopped": path, "killed": log} {
		t.Run(name, func(t *testing.T) {
			before := contents(t, filepath.Dir(path))
			for _, readOnly := range []bool{true, false} {
				opts := Options()
				opts.ReadOnly = readOnly
				_, err := netdb.Open(path, opts)
				if !errors.Is(err, netdb.ErrOldBuild) || errors.Is(err, netdb.ErrDamaged) || !strings.Contains(err.Error(), `run "ipamd rebuild"`) {
					t.Errorf("read-only %v: %v", readOnly, err)
				}
			}
			s, err := salvage.Book(path)
			if err != nil || len(s.Problems) > 0 || s.RunnerUID != "r1" || s.Runtime != "c1" || s.Epoch == "" {
				t.Errorf("salvaged %+v, %v", s, err)
			}
			if gone := Missing(s.Leases, leases); len(gone) > 0 || len(s.Leases) != len(leases) {
				t.Errorf("%d are salvaged, without %v", len(s.Leases), gone)
			}
			if after := contents(t, filepath.Dir(path)); !maps.Equal(after, before) {
				t.Error("it was changed")
			}
		})
	}
}

// Without its rows the history of such a book says who held what.
func TestABookOfBeforeTheReleaseWithoutItsRows(t *testing.T) {
	path := filepath.Join(t.TempDir(), "book.db")
	_, leases := Busy(t, filepath.Dir(path))
	BeforeRelease(t, path)
	raw(t, path, `DELETE FROM leases`)
	s, err := salvage.Book(path)
	if err != nil || len(Missing(s.Leases, leases)) > 0 {
		t.Errorf("without %v: %v, %v", Missing(s.Leases, leases), s.Problems, err)
	}
	if !slices.IsSortedFunc(s.Leases, func(x, y *ipam.Lease) int { return x.Addr.Compare(y.Addr) }) {
		t.Error("they are not in the order of their addresses")
	}
}
