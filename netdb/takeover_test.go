package netdb_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/ipamd/ipamd/internal/faultfs"
	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/netdb"
	. "github.com/ipamd/ipamd/netdb/netdbtest"
)

// Scenario P1: of another runner's book nothing is changed but by its adoption, and that
// takes the very book that was looked at, into another epoch, with its leases.
func TestTakeOver(t *testing.T) {
	for name, abroad := range map[string]func(*netdb.Options){
		"another runner":             func(o *netdb.Options) { o.RunnerUID = "two" },
		"another machine":            func(o *netdb.Options) { o.MachineID = "machine-two" },
		"another machine's namesake": func(o *netdb.Options) { o.RunnerUID, o.MachineID = "one", "machine-two" },
	} {
		t.Run(name, func(t *testing.T) {
			path, opts := filepath.Join(t.TempDir(), "book.db"), Options()
			opts.RunnerUID, opts.MachineID = "one", "machine-one"
			b := OpenAt(t, path, opts)
			pool := Pool(t, b, "default", "10.8.64.0/24")
			held, cools := Reserve(t, b, "a"), Cool(t, b, Reserve(t, b, "b"))
			Close(t, b)

			opts.RunnerUID = ""
			abroad(&opts)
			b = OpenAt(t, path, opts)
			epoch, rev := b.Epoch(), b.Rev()
			for verb, err := range map[string]error{
				"reserve": func() error { _, err := TryReserve(b, pool, "c", Policy); return err }(),
				"bind": func() error {
					_, err := b.Bind(ctx, client, held.ID, 0, ipam.Binding{MAC: "02:00:00:00:00:01"})
					return err
				}(),
				"release":      func() error { _, err := b.Release(ctx, client, held.ID, "", 0); return err }(),
				"free":         func() error { _, err := b.Expire(ctx, watchdog, held.ID, held.Rev, nil); return err }(),
				"cancel":       func() error { _, err := b.Cancel(ctx, client, "d", 1); return err }(),
				"note runtime": b.NoteRuntime(ctx, watchdog, "r", true),
				"hold": func() error {
					who := Who(ipam.ByOperator, "held")
					who.Note = "why"
					_, err := b.Hold(ctx, who, cools.Addr, nil)
					return err
				}(),
				"adopt another book": b.TakeOver(ctx, Who(ipam.ByOperator, ""), "of before"),
			} {
				want := netdb.ErrIdentity
				if verb == "adopt another book" {
					want = ipam.ErrStale
				}
				if !errors.Is(err, want) {
					t.Errorf("%s: %v", verb, err)
				}
			}
			if b.Rev() != rev || b.Epoch() != epoch {
				t.Fatalf("it is at %d of %s, was %d of %s", b.Rev(), b.Epoch(), rev, epoch)
			}
			Check(t, b)

			// Of those who confirm at once one is the first, and none is confirmed twice.
			var all sync.WaitGroup
			outcomes := make([]error, 4)
			for i := range outcomes {
				all.Go(func() { outcomes[i] = b.TakeOver(ctx, Who(ipam.ByOperator, ""), epoch) })
			}
			all.Wait()
			done := 0
			for _, err := range outcomes {
				switch {
				case err == nil:
					done++
				case !errors.Is(err, ipam.ErrStale) && !errors.Is(err, ipam.ErrState):
					t.Errorf("adopted beside another: %v", err)
				}
			}
			if is := b.Identity(); done != 1 || b.CheckIdentity() != nil || is.Epoch == epoch || is.RunnerUID == "" || is.MachineID != b.Successor().MachineID {
				t.Fatalf("adopted %d times, it is %+v: %v", done, is, b.CheckIdentity())
			}
			if opts.RunnerUID == "" && b.Identity().RunnerUID == "one" {
				t.Error("a copy has the uid of the runner that it was copied from")
			}
			if b.Rev() != rev+1 {
				t.Errorf("the adoption is revision %d behind %d", b.Rev(), rev)
			}
			now, err := b.Bind(ctx, client, held.ID, 0, ipam.Binding{MAC: "02:00:00:00:00:01"})
			if err != nil || now.Addr != held.Addr {
				t.Errorf("bind: %+v, %v", now, err)
			}
			is := b.Identity()
			Close(t, b)
			b = OpenAt(t, path, opts)
			if b.Identity() != is || b.CheckIdentity() != nil || b.Info().Restored != "" {
				t.Errorf("behind a restart it is %+v, %v, %q; was %+v", b.Identity(), b.CheckIdentity(), b.Info().Restored, is)
			}
			if _, err := TryReserve(b, b.Pools()[0], "c", Policy); err != nil {
				t.Error(err)
			}
			if err := b.TakeOver(ctx, Who(ipam.ByOperator, ""), is.Epoch); !errors.Is(err, ipam.ErrState) || !strings.Contains(err.Error(), "already") {
				t.Errorf("adopted although it is this runner's: %v", err)
			}
		})
	}
}

// L16: the power goes behind every operation of an adoption: the book is the former
// runner's or this one's, whole, with the same leases; and once the adoption was
// acknowledged it is this one's, in the epoch that was answered.
func TestL16PowerLossInAnAdoption(t *testing.T) {
	l := unborn(t, "full")
	l.opts.RunnerUID = "one"
	l.open(t)
	Pool(t, l.book, "default", "10.8.64.0/24")
	Reserve(t, l.book, "a")
	Cool(t, l.book, Reserve(t, l.book, "b"))
	Close(t, l.book)
	l.opts.RunnerUID = "two"
	l.open(t)
	began, was, leases := l.disk.Len(), l.book.Identity(), l.rowsOf(l.book)
	l.done(t, l.book.TakeOver(ctx, Who(ipam.ByOperator, ""), was.Epoch))
	is := l.book.Identity()
	Close(t, l.book)

	old, adopted := 0, 0
	v := l.cutAt(t, 0, func(n int, _ faultfs.Op) bool { return n >= began }, func(in string, image faultfs.Image, acked int) (lost bool, err error) {
		b, done, err := l.openOn(in, image)
		if err != nil {
			return false, err
		}
		defer func() { err = errors.Join(err, done()) }()
		found, err := b.Check(ctx)
		switch now := b.Identity(); {
		case err != nil || len(found) > 0:
			return false, fmt.Errorf("%v, %w", found, err)
		case l.rowsOf(b) != leases:
			return false, fmt.Errorf("it has\n%s, and had\n%s", l.rowsOf(b), leases)
		case acked == len(l.memos) && now != is:
			return false, fmt.Errorf("it is %+v, and was acknowledged as %+v", now, is)
		case now.RunnerUID == was.RunnerUID && b.CheckIdentity() != nil:
			old++
		case now.RunnerUID == is.RunnerUID && b.CheckIdentity() == nil:
			adopted++
		default:
			return false, fmt.Errorf("it is %+v, was %+v and became %+v", now, was, is)
		}
		return false, nil
	})
	t.Logf("%d cuts, %d different disks: %d times the former runner's, %d times adopted", v.cuts, v.images, old, adopted)
	if old == 0 || adopted == 0 {
		t.Error("no cut was on one side of the commit")
	}
}
