package netdb_test

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/netdb"
	. "github.com/ipamd/ipamd/netdb/netdbtest"
)

// F20: a cooldown of a real book, while CLOCK_BOOTTIME jumps under the daemon and
// between two of them, and the boot's id is exchanged: it ends when it has passed,
// or later, and at the latest its full length after the last start.
func TestF20ACooldownUnderClocksThatJump(t *testing.T) {
	s, opts := NewClock(), Options()
	opts.Now = s.Now
	path := filepath.Join(t.TempDir(), "book.db")
	var b *netdb.Book
	open := func() {
		t.Helper()
		var err error
		if b != nil {
			if err = b.Close(); err != nil {
				t.Fatal(err)
			}
		}
		if b, err = netdb.Open(path, opts); err != nil {
			t.Fatal(err)
		}
	}
	open()
	t.Cleanup(func() { b.Close() })
	pool := Pool(t, b, "p", "10.8.64.0/30")
	if _, err := b.Quarantine(ctx, operator, addr("10.8.64.2"), evidence); err != nil {
		t.Fatal(err)
	}
	if _, err := Clear(b, addr("10.8.64.2")); err != nil {
		t.Fatal(err)
	}
	policy := ipam.Policy{Cooldown: 30 * time.Minute, CooldownMin: time.Minute, Strict: true}
	cools := func(want bool, when string) {
		t.Helper()
		c, err := b.Pick(pool.UID, policy)
		if err == nil {
			b.Drop(c)
		}
		if (err != nil) != want {
			t.Errorf("%s: it cools %v (%v)", when, !want, err)
		}
	}
	s.Boottime += 48 * time.Hour
	cools(true, "a jump forward under the daemon")
	s.Pass(20 * time.Minute)
	s.Boottime += 48 * time.Hour
	open()
	cools(true, "a jump forward between two daemons")
	s.Pass(9 * time.Minute)
	cools(true, "29 minutes")
	s.Pass(time.Minute)
	cools(false, "30 minutes")
	s.BootID = "two"
	open()
	cools(true, "another boot's id, while the uptime goes on")
	if why := b.Info().Clock; why == nil {
		t.Error("what cannot be is not reported")
	}
	s.Boottime = time.Minute
	cools(true, "a jump backward")
	s.Pass(30 * time.Minute)
	cools(false, "its full length after the start")
}

// A lease that was read again, as after a commit that failed, is as it was: what waits for it,
// like a packet that could not begin a wake, knows it by the moment of its last move.
func TestAStampThatWasReadAgainIsTheSame(t *testing.T) {
	path, opts := filepath.Join(t.TempDir(), "book.db"), Options()
	opts.Now = ipam.Now
	b := OpenAt(t, path, opts)
	Pool(t, b, "default", "10.8.64.0/24")
	was, later := Reserve(t, b, "a"), Reserve(t, b, "b")
	Close(t, b)
	now, err := OpenAt(t, path, opts).Lease(was.ID)
	if err != nil || !now.Since.Same(was.Since) || now.Since.Same(later.Since) {
		t.Errorf("%+v was %+v, %v", now.Since, was.Since, err)
	}
	if now.Since == was.Since {
		t.Error("nothing is lost by being read: == would do")
	}
}
