package netdb_test

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ipamd/ipamd/internal/realtest"
	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/netdb"
	. "github.com/ipamd/ipamd/netdb/netdbtest"
)

// Scenario P6: an unchanged file is old news: it undoes no change, no drain and no removal
// of a pool, also behind a restart; a changed line is applied, all of them or none.
func TestAnUnchangedConfigurationIsOldNews(t *testing.T) {
	path := filepath.Join(t.TempDir(), "book.db")
	b := OpenAt(t, path, Options())
	file := []ipam.PoolSpec{spec("default", "10.8.64.0/24"), spec("second", "10.9.0.0/24"), spec("third", "10.10.0.0/24")}
	var missing []string
	configure := func(changed ...string) {
		t.Helper()
		out, err := b.Configure(ctx, operator, file, missing...)
		var names []string
		for _, o := range out {
			names = append(names, o.Pool.Name)
		}
		if err != nil || strings.Join(names, " ") != strings.Join(changed, " ") {
			t.Fatalf("changed %v, %v, want %v", names, err, changed)
		}
	}
	configure("default", "second", "third")
	held := Reserve(t, b, "a")
	pools := func() (of map[string]*ipam.Pool) {
		of = make(map[string]*ipam.Pool)
		for _, p := range b.Pools() {
			of[p.Name] = p
		}
		return of
	}
	grown := set(t, b, netdb.PoolChange{Spec: spec("default", "10.8.64.0/23")}).Pool
	if _, err := b.DrainPool(ctx, operator, pools()["second"].UID, 0); err != nil {
		t.Fatal(err)
	}
	remove(t, b, pools()["third"].UID, false)
	rev := b.Rev()
	for range 2 {
		configure()
		if is := pools(); is["default"].Prefix != grown.Prefix || is["second"].State != ipam.PoolDraining || is["third"] != nil || b.Rev() != rev {
			t.Fatalf("%+v", is)
		}
		Close(t, b)
		b = OpenAt(t, path, Options())
	}

	// One line is refused, and none is applied.
	file[0].Prefix, file[1].MTU = spec("", "10.11.0.0/24").Prefix, 1400
	file[0].Gateway = addr("10.11.0.1")
	if out, err := b.Configure(ctx, operator, file); !errors.Is(err, ipam.ErrPoolNotEmpty) || out != nil || b.Rev() != rev || !strings.Contains(err.Error(), held.Addr.String()) {
		t.Fatalf("%v, %v", out, err)
	}
	file[0] = spec("default", "10.8.64.0/24")
	configure("second")
	if p := pools()["second"]; p.MTU != 1400 || p.State != ipam.PoolActive {
		t.Errorf("%+v", p)
	}
	// What one pool leaves another may have, whichever comes first.
	file[1], file[2] = spec("second", "10.10.0.0/24"), spec("third", "10.9.0.0/24")
	configure("second", "third")
	file = append(file[:0:0], spec("second", "10.9.0.0/24"), spec("third", "10.12.0.0/24"), file[0])
	configure("third", "second")

	// A pool stays on the bridge that its leases live on, unless that is gone: another boot.
	for i := range file {
		file[i].Bridge = "rt1"
	}
	rev = b.Rev()
	var stays *ipam.PoolNotEmptyError
	if _, err := b.Configure(ctx, operator, file, "rt1", "rt2"); !errors.As(err, &stays) || stays.Bridge != "rt0" || b.Rev() != rev ||
		len(stays.Effects) != 1 || stays.Effects[0].Lease.ID != held.ID || !strings.Contains(err.Error(), "rt0") {
		t.Fatalf("%+v, %v", stays, err)
	}
	missing = []string{"rt0"}
	configure("second", "third", "default")

	// A line that goes leaves its pool, and is new when it comes back.
	gone := file[0]
	file = file[1:]
	configure()
	if left := b.Unconfigured(); len(left) != 1 || left[0].Name != "second" || pools()["second"] == nil {
		t.Errorf("%v", left)
	}
	remove(t, b, pools()["second"].UID, false)
	file = append(file, gone)
	configure("second")
	set(t, b, netdb.PoolChange{Spec: spec("made-by-hand", "10.13.0.0/24")})
	if left := b.Unconfigured(); len(left) != 0 {
		t.Errorf("%v", left)
	}
}

// Scenario P6: a pool that is removed in the commit in which the configuration gives it up is remembered
// as removed at its generation, in either order.
func TestAPoolIsRemovedAndGivenUpInOneCommit(t *testing.T) {
	for _, first := range []string{"removed", "given up"} {
		t.Run(first+" first", func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "book.db")
			opts, largest := Options(), 0
			opts.OnCommit = func(_ time.Duration, batch int) { largest = max(largest, batch) }
			b := OpenAt(t, path, opts)
			stays, goes := spec("default", "10.8.64.0/24"), spec("goes", "10.9.0.0/24")
			if _, err := b.Configure(ctx, operator, []ipam.PoolSpec{stays, goes}); err != nil {
				t.Fatal(err)
			}
			uid := set(t, b, netdb.PoolChange{Spec: goes, Generation: 7}).Pool.UID
			changes := []func() error{
				func() error { _, err := b.RemovePool(ctx, operator, uid, false); return err },
				func() error { _, err := b.Configure(ctx, operator, []ipam.PoolSpec{stays}); return err },
			}
			if first == "given up" {
				slices.Reverse(changes)
			}
			unlock := lockOut(t, path)
			done := make(chan error, len(changes))
			for i, change := range changes {
				go func() { done <- change() }()
				realtest.Eventually(t, 10*time.Second, "the change to wait", func() bool { return b.Waiting() == i+1 })
			}
			unlock()
			for range changes {
				if err := <-done; err != nil {
					t.Fatal(err)
				}
			}
			if largest != 2 {
				t.Fatalf("the largest commit was of %d changes", largest)
			}
			Check(t, b)
			_, err := b.SetPool(ctx, operator, netdb.PoolChange{Spec: goes, Generation: 7})
			wantErr(t, err, ipam.ErrStaleGeneration)
		})
	}
}
