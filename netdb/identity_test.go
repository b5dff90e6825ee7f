package netdb_test

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/netdb"
	. "github.com/ipamd/ipamd/netdb/netdbtest"
)

// R11: another boot is noted once, reported, and frees nothing.
func TestR11AnotherBootIsNotedAndFreesNothing(t *testing.T) {
	c, path := NewClock(), filepath.Join(t.TempDir(), "book.db")
	opts := Options()
	opts.Now = c.Now
	reader := opts
	reader.ReadOnly = true
	boots := func(b *netdb.Book, rebooted bool, when string) {
		t.Helper()
		if i := b.Info(); i.Rebooted != rebooted || i.BootID != c.BootID {
			t.Errorf("%s: rebooted %v, boot %q", when, i.Rebooted, i.BootID)
		}
	}
	b := OpenAt(t, path, opts)
	boots(b, false, "a new book")
	Pool(t, b, "default", "10.8.64.0/24")
	held, cools, epoch := inState(t, b, ipam.Bound), Cool(t, b, Reserve(t, b, "b")), b.Epoch()
	rev := b.Rev()
	Close(t, b)
	b = OpenAt(t, path, opts)
	boots(b, false, "a restart")
	Close(t, b)
	c.Reboot("two", 24*time.Hour)
	for range 2 { // a reader notes nothing
		b = OpenAt(t, path, reader)
		boots(b, true, "a reader after a reboot")
		Close(t, b)
	}
	b = OpenAt(t, path, opts)
	boots(b, true, "after a reboot")
	for _, was := range []*ipam.Lease{held, cools} {
		if now, ok := b.At(was.Addr); !ok || now.State != was.State || now.ID != was.ID || now.Rev != was.Rev {
			t.Errorf("the reboot made %+v of %+v", now, was)
		}
	}
	if b.Rev() != rev || b.Epoch() != epoch {
		t.Errorf("revision %d of epoch %s after a reboot, was %d of %s", b.Rev(), b.Epoch(), rev, epoch)
	}
	Close(t, b)
	b = OpenAt(t, path, opts)
	boots(b, false, "a restart in the new boot")
}

// A book whose write lock another process has opens all the same, and the boot is
// noted by the next opening.
func TestABootThatCannotBeNoted(t *testing.T) {
	c, path := NewClock(), filepath.Join(t.TempDir(), "book.db")
	opts := Options()
	opts.Now = c.Now
	Close(t, OpenAt(t, path, opts))
	c.Reboot("two", time.Minute)
	unlock := lockOut(t, path)
	b, err := netdb.Open(path, opts)
	if err != nil {
		t.Fatal(err)
	}
	if !b.Info().Rebooted {
		t.Error("the reboot is not reported")
	}
	unlock()
	Close(t, b)
	b = OpenAt(t, path, opts)
	if !b.Info().Rebooted {
		t.Error("it was noted where it could not be")
	}
	Close(t, b)
	if OpenAt(t, path, opts).Info().Rebooted {
		t.Error("it was never noted")
	}
}
