package netdb_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/ipamd/ipamd/internal/faultfs"
	"github.com/ipamd/ipamd/netdb"
	. "github.com/ipamd/ipamd/netdb/netdbtest"
)

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
	began, was, leases := l.disk.Len(), l.book.Holding(), l.rowsOf(l.book)
	l.done(t, l.book.TakeOver(ctx, Who(netdb.ByOperator, ""), was.Epoch))
	is := l.book.Holding()
	Close(t, l.book)

	old, adopted := 0, 0
	v := l.cutAt(t, 0, func(n int, _ faultfs.Op) bool { return n >= began }, func(in string, image faultfs.Image, acked int) (lost bool, err error) {
		dir := filepath.Join(in, "disk")
		if err := os.Mkdir(dir, 0o700); err != nil {
			return false, err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
		if err := lay(image, dir); err != nil {
			return false, err
		}
		b, err := netdb.Open(filepath.Join(dir, "book.db"), l.opts)
		if err != nil {
			return false, err
		}
		defer func() { err = errors.Join(err, b.Close()) }()
		found, err := b.Check(ctx)
		switch now := b.Holding(); {
		case err != nil || len(found) > 0:
			return false, fmt.Errorf("%v, %w", found, err)
		case l.rowsOf(b) != leases:
			return false, fmt.Errorf("it has\n%s, and had\n%s", l.rowsOf(b), leases)
		case acked == len(l.memos) && now != is:
			return false, fmt.Errorf("it is %+v, and was acknowledged as %+v", now, is)
		case now.RunnerUID == was.RunnerUID && b.Identity() != nil:
			old++
		case now.RunnerUID == is.RunnerUID && b.Identity() == nil:
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
