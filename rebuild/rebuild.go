package rebuild

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/config"
	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/netdb"
	"github.com/ipamd/ipamd/netdb/bookfile"
	"github.com/ipamd/ipamd/netdb/salvage"
	"github.com/ipamd/ipamd/reconciler"
)

// A Rebuild is one run.
type Rebuild struct {
	Config  config.Config
	Open    Opener
	Preview bool // report what would be done, and change nothing
	Force   bool // also where the book is whole, or nothing of a lease book can be read in it

	verb string // of ipamd, that it is a part of; "" for rebuild
	done func(*restorer, *Report)

	// passOver decides which of two leases an address is of; it may change old.Leases.
	passOver func(gone func(*ipam.Lease) bool)
}

// An Opener opens the parts on a new book, at the configuration's path.
type Opener func(context.Context, config.Config) (*Parts, error)

// Parts are what a rebuild needs of a daemon.
type Parts struct {
	Book    *netdb.Book
	Board   *census.Board
	Runtime bool                                                               // there is one to ask
	Follow  func(context.Context) error                                        // has the bridges of all pools of the book looked after
	Refresh func(context.Context) error                                        // reads every witness anew
	Pass    func(context.Context, reconciler.Book) (*reconciler.Report, error) // a first pass that writes through a book
	// PlugOf says which link and which namespace those names are now; 0 is none, or after an error not known.
	PlugOf func(ctx context.Context, hostInterface, netns string) (index int, inode uint64, err error)
	Close  func() error
}

// Run rebuilds the book. After an error the old one is in its place, or the
// error says that running again finishes.
func (r *Rebuild) Run(ctx context.Context) (*Report, error) {
	path, err := bookfile.RealPath(r.Config.Book.Path)
	if err != nil {
		return nil, noBook(err)
	}
	r.Config.Book.Path = path
	s := Swap{path}
	if _, err := os.Stat(filepath.Dir(path)); err != nil {
		return nil, noBook(err)
	}
	lock, err := s.Lock(unix.LOCK_EX)
	if err != nil {
		return nil, err
	}
	defer lock.Close()
	switch cut, err := s.Cut(); {
	case err != nil:
		return nil, err
	case cut && r.Preview:
		return nil, errors.New("a rebuild was cut short after all was decided: run it without --preview to finish it")
	case cut:
		return r.finish(s)
	}
	why, err := r.reason()
	if err != nil {
		return nil, err
	}
	old, err := r.salvage(errors.Is(why, netdb.ErrNotABook))
	if err != nil {
		return nil, err
	}
	return r.replace(ctx, s, old, "running it again", func(report *Report) {
		report.Broken, report.WasEpoch = why.Error(), old.Epoch
	})
}

// replace builds a book from old, has describe complete its report, and moves it in at s; a
// preview builds it elsewhere and throws it away. finishes is what ends a replacement that was
// cut short.
func (r *Rebuild) replace(ctx context.Context, s Swap, old salvage.Found, finishes string, describe func(*Report)) (*Report, error) {
	at := s.Rebuilding()
	if r.Preview {
		dir, err := os.MkdirTemp("", "ipamd-preview-")
		if err != nil {
			return nil, err
		}
		defer os.RemoveAll(dir)
		at = filepath.Join(dir, "book.db")
	} else if err := s.discard(); err != nil {
		return nil, err
	}
	report, err := r.Build(ctx, at, old)
	if err == nil {
		report.Book, report.Preview = s.Path, r.Preview
		describe(report)
	}
	if r.Preview {
		return report, err
	}
	if err == nil {
		report.Aside, err = s.finish(ipam.Now().Wall)
	}
	if err == nil {
		return report, nil
	}
	if cut, _ := s.Cut(); cut { // the old one is away already: the new one is all there is
		return nil, fmt.Errorf("%w; %s finishes it", err, finishes)
	}
	return nil, errors.Join(err, s.discard())
}

func noBook(err error) error {
	return fmt.Errorf(`%w; there is no book: "ipamd run" makes one, and adopts who is live`, err)
}

// errWhole is the reason to rebuild that only force accepts.
var errWhole = errors.New("the book was whole")

// reason says what is wrong with the book, or why it cannot be rebuilt.
func (r *Rebuild) reason() (why, err error) {
	path := r.Config.Book.Path
	st, err := os.Lstat(path)
	if errors.Is(err, os.ErrNotExist) {
		if log, err := exists(path + bookfile.LogEnd); err != nil || log {
			return fmt.Errorf("%w: its log is there, and the book itself is not", netdb.ErrDamaged), err
		}
		return nil, noBook(err)
	}
	if err != nil {
		return nil, err
	}
	if st.Size() == 0 && !r.Force {
		return nil, noBook(errors.New("the file is empty"))
	}
	opts := r.Config.BookOptions()
	opts.ReadOnly = true
	book, err := netdb.Open(path, opts)
	for _, broken := range []error{netdb.ErrDamaged, netdb.ErrNotABook, netdb.ErrOldBuild} {
		if errors.Is(err, broken) {
			return broken, nil
		}
	}
	var found []netdb.Violation
	if errors.Is(err, netdb.ErrOlderSchema) {
		if found, err = salvage.CheckMigrated(context.Background(), path, opts); errors.Is(err, netdb.ErrDamaged) {
			return netdb.ErrDamaged, nil
		}
	} else if err == nil {
		found, err = book.Check(context.Background())
		err = errors.Join(err, book.Close())
	}
	if err != nil {
		return nil, err
	}
	switch {
	case len(found) > 0:
		return fmt.Errorf("%w: %d violations, as %s", netdb.ErrDamaged, len(found), found[0]), nil
	case !r.Force:
		return nil, errors.New(`it is whole ("ipamd check" says the same); a new one would lose its history, its tombstones and the order of reuse. --force makes it all the same`)
	}
	return errWhole, nil
}

// salvage reads what it can of the old book. In a file that need not have been
// one, a page that can be read is asked for: it may be another program's.
func (r *Rebuild) salvage(strange bool) (salvage.Found, error) {
	path := r.Config.Book.Path
	old, err := salvage.Book(path)
	if errors.Is(err, os.ErrNotExist) {
		old.Problems, err = append(old.Problems, "the book itself is not there, only its log, in which nothing can be read without it"), nil
	}
	if err != nil {
		return old, err
	}
	if strange && !r.Force && old.Epoch == "" && len(old.Leases) == 0 && len(old.Named) == 0 {
		return old, errors.New("nothing of a lease book can be read in it, so it may be another program's; if it was the book, --force moves it away")
	}
	return old, nil
}

// finish moves in what an earlier run had made and could not move.
func (r *Rebuild) finish(s Swap) (*Report, error) {
	aside, err := s.finish(ipam.Now().Wall)
	if err != nil {
		return nil, err
	}
	opts := r.Config.BookOptions()
	opts.ReadOnly = true
	book, err := netdb.Open(s.Path, opts)
	if err != nil {
		return nil, err
	}
	defer book.Close()
	out := reportOf(book)
	out.Book, out.Finished, out.Aside = s.Path, true, bookfile.MovedAside(s.Path)
	if aside != "" && aside != out.Aside {
		out.Unexplained = append(out.Unexplained, "the old book's log was moved for itself, to "+aside)
	}
	return out, nil
}
