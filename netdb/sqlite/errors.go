package sqlite

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

// Errors of an opening. Each refusal leaves the file untouched.
var (
	// ErrNotABook means that the file is no lease book of ipamd.
	ErrNotABook = errors.New("not a lease book of ipamd")
	// ErrNewerSchema means that a newer ipamd wrote the book: upgrade ipamd.
	ErrNewerSchema = errors.New("the book was written by a newer ipamd")
	// ErrOlderSchema means that an older ipamd wrote a book that is opened for reading only:
	// start ipamd once to migrate it, or check a copy that is migrated.
	ErrOlderSchema = errors.New("an older ipamd wrote the book")
	// ErrOldBuild means that the last build before 0.1.0 made the book. Such a book is not
	// migrated: "ipamd rebuild" takes its leases over.
	ErrOldBuild = errors.New("the book was made by a build before 0.1.0")
	// ErrDamaged means that SQLite's own check found the file broken. A
	// request may meet it, too, and then it is [ErrReadOnly] besides.
	ErrDamaged = errors.New("the book is damaged")
)

// Errors of the open file. Try again; reads keep working.
var (
	// ErrBusy means that another process holds the book's write lock.
	ErrBusy = errors.New("the book is busy")
	// ErrReadOnly means that the book cannot be written: disk full, read-only
	// or failing. It ends by itself once a write succeeds.
	ErrReadOnly = errors.New("the book cannot be written")
	// ErrMoved means that the book, its log or the log's index does not lie any more
	// where it was opened: moved, deleted, replaced, or their folder was. Reads keep
	// working. A change that was under way in that moment may have been made in the
	// files that were taken away; it was not acknowledged.
	ErrMoved = fmt.Errorf("%w: its files were taken away", ErrReadOnly)
)

// A Trouble is what does not work, and since when.
type Trouble struct {
	Why   error
	Since time.Time
}

// Troubles has the trouble that stands, if one does. The zero value has none.
type Troubles struct{ now atomic.Pointer[Trouble] }

// Now is the trouble that stands, nil for none.
func (t *Troubles) Now() *Trouble { return t.now.Load() }

// Over ends it.
func (t *Troubles) Over() { t.now.Store(nil) }

// Remember keeps the first moment of a trouble, and its last reason.
func (t *Troubles) Remember(why error, now time.Time) {
	next := &Trouble{Why: why, Since: now}
	for {
		old := t.now.Load()
		if old != nil {
			next.Since = old.Since
		}
		if t.now.CompareAndSwap(old, next) {
			return
		}
	}
}
