package netdb_test

import (
	"flag"
	"math/rand/v2"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/ipamd/ipamd/internal/faultfs"
)

// A trouble is how a disk fails, from the moment that it starts to.
type trouble struct {
	kinds     []faultfs.Kind // that can fail
	fault     faultfs.Fault
	stays     bool // until it is restored; else one operation alone fails
	after     faultfs.Fault
	meanwhile []faultfs.Kind // that fail with EIO all the while, from the start
}

var (
	looking  = []faultfs.Kind{faultfs.Stat, faultfs.Open, faultfs.Read}
	changing = []faultfs.Kind{faultfs.Create, faultfs.Write, faultfs.Truncate, faultfs.Sync, faultfs.Unlink, faultfs.Rename, faultfs.SyncDir}
)

const once = "any operation, once"

var troubles = map[string]trouble{
	once:                     {kinds: slices.Concat(looking, changing), fault: faultfs.Fault{Err: syscall.EIO}},
	"every read":             {kinds: []faultfs.Kind{faultfs.Read}, fault: faultfs.Fault{Err: syscall.EIO}, stays: true},
	"every change":           {kinds: changing, fault: faultfs.Fault{Err: syscall.EIO}, stays: true},
	"every operation":        {kinds: slices.Concat(looking, changing), fault: faultfs.Fault{Err: syscall.EIO}, stays: true},
	"no room":                {kinds: []faultfs.Kind{faultfs.Create, faultfs.Write, faultfs.Room}, fault: faultfs.Fault{Err: syscall.ENOSPC}, stays: true},
	"no room behind a while": {kinds: []faultfs.Kind{faultfs.Write}, fault: faultfs.Fault{Short: 100}, stays: true, after: faultfs.Fault{Err: syscall.ENOSPC}},
	"read-only":              {kinds: slices.DeleteFunc(slices.Clone(changing), func(k faultfs.Kind) bool { return k == faultfs.Sync }), fault: faultfs.Fault{Err: syscall.EROFS}, stays: true},
	"one sync":               {kinds: []faultfs.Kind{faultfs.Sync}, fault: faultfs.Fault{Err: syscall.EIO}},
	"every sync":             {kinds: []faultfs.Kind{faultfs.Sync}, fault: faultfs.Fault{Err: syscall.EIO}, stays: true},
}

// oneRead is a disk that takes no write, and does not bring one page: what is read
// again behind a refusal is cut short.
const oneRead = "no write, and one read"

var everyOperation = flag.Bool("faults.every", false, "a disk fails from each operation on, and not from a sample of them")

// skips is how many operations are passed over, unless one of them is new: what SQLite does by
// the dozen fails in a sample that is another in each run. A disk that stays ill refuses alike
// what follows, and so of those more are.
func (tr trouble) skips() int {
	switch {
	case *everyOperation:
		return 0
	case tr.stays:
		return rand.IntN(14)
	}
	return rand.IntN(6)
}

// A tally counts what failed, by the kind of operation and the file: a test
// that says "each operation" says with it which ones it met.
type tally map[string]int

func (c tally) want(t *testing.T, operations ...string) {
	t.Helper()
	t.Logf("failed: %v", c)
	for _, o := range operations {
		if c[o] == 0 {
			t.Errorf("it was never tried what becomes of a failed %s", o)
		}
	}
}

// strike makes the disk fail at the k-th operation from now that the trouble
// can strike, counted from 0, or up to so many behind it if none before that is new among those
// that begun has, and adds what fails to the tally. restore ends that, and reports which
// operation it was, or -1 if it came to none.
func (tr trouble) strike(d *faultfs.Disk, k, skips int, begun, failed tally) (restore func() (at int)) {
	n, at := -1, -1
	d.Inject(func(op faultfs.Op) (f faultfs.Fault) {
		hits := slices.Contains(tr.kinds, op.Kind)
		if hits {
			n++
			if at < 0 && n >= k && (n >= k+skips || begun[nameOf(op)] == 0) {
				at = n
				begun[nameOf(op)]++
			}
		}
		switch {
		case slices.Contains(tr.meanwhile, op.Kind):
			f.Err = syscall.EIO
		case !hits || at < 0:
		case n == at || tr.stays && tr.after.Err == 0:
			f = tr.fault
		case tr.stays:
			f = tr.after
		}
		if f != (faultfs.Fault{}) {
			failed[nameOf(op)]++
		}
		return f
	})
	return func() int {
		d.Inject(nil) // and so nothing counts any more
		return at
	}
}

// strikeFirst is strike at the first operation of a name.
func (tr trouble) strikeFirst(d *faultfs.Disk, name string, failed tally) (restore func() (at int)) {
	n, at := -1, -1
	d.Inject(func(op faultfs.Op) (f faultfs.Fault) {
		n++
		switch {
		case at < 0 && nameOf(op) == name:
			at, f = n, tr.fault
			failed[name]++
		case slices.Contains(tr.meanwhile, op.Kind):
			f.Err = syscall.EIO
		}
		return f
	})
	return func() int {
		d.Inject(nil)
		return at
	}
}

func nameOf(op faultfs.Op) string { return strings.TrimSpace(string(op.Kind) + " " + op.Name) }
