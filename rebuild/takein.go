package rebuild

import (
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/ipamd/ipamd/config"
	"github.com/ipamd/ipamd/netdb"
	"github.com/ipamd/ipamd/netdb/bookfile"
	"github.com/ipamd/ipamd/netdb/salvage"
)

// A TakeIn makes a new book from an older record, the present book and what lives now: a
// restore of a backup, or an import of the predecessor's file. Build and Swap are those of a
// rebuild, and so are its promises.
type TakeIn struct {
	Config  config.Config
	Open    Opener
	File    string // the older record; it is only read
	Import  bool   // it is the predecessor's
	Confirm bool   // else report what would be done, and change nothing
}

func (k *TakeIn) verb() string {
	if k.Import {
		return "import"
	}
	return "restore"
}

func (k *TakeIn) source() string {
	if k.Import {
		return "file"
	}
	return "backup"
}

// Run takes the file in. After an error the present book is in its place, or the error says
// what finishes it.
func (k *TakeIn) Run(ctx context.Context) (*Report, error) {
	path, err := bookfile.RealPath(k.Config.Book.Path)
	if err != nil {
		return nil, err
	}
	k.Config.Book.Path = path
	s := Swap{path}
	lock, err := s.Lock(unix.LOCK_EX)
	if err != nil {
		return nil, err
	}
	defer lock.Close()
	if cut, err := s.Cut(); err != nil || cut {
		if err == nil {
			err = errors.New(`a rebuild, restore or import was cut short; "ipamd rebuild" finishes it, and then this can be run`)
		}
		return nil, err
	}
	older, err := k.read()
	if err != nil {
		return nil, fmt.Errorf("%w; nothing was changed", err)
	}
	present, is, err := k.present()
	if err != nil {
		return nil, err
	}
	m := merge(older, present, k.source())
	if err := k.holder(&m, older, present); err != nil {
		return nil, err
	}
	return k.make(ctx, s, &m, is)
}

// read reads the older record, all of it or not at all: of a book, what is broken may be
// what matters.
func (k *TakeIn) read() (salvage.Found, error) {
	if mine, err := os.Stat(k.Config.Book.Path); err == nil {
		if st, err := os.Stat(k.File); err == nil && os.SameFile(st, mine) {
			return salvage.Found{}, fmt.Errorf("%s is the present book itself; name another file", k.File)
		}
	}
	if k.Import {
		return salvage.Predecessor(k.File)
	}
	opts := config.Default().BookOptions()
	opts.ReadOnly = true
	var found []netdb.Violation
	b, err := netdb.Open(k.File, opts)
	if errors.Is(err, netdb.ErrOlderSchema) {
		found, err = salvage.CheckMigrated(context.Background(), k.File, opts)
	} else if err == nil {
		found, err = b.Check(context.Background())
		err = errors.Join(err, b.Close())
	}
	if err != nil {
		return salvage.Found{}, fmt.Errorf("read the backup: %w", err)
	}
	if len(found) > 0 {
		return salvage.Found{}, fmt.Errorf(`read the backup: %s: %w: %d violations, as %s; "ipamd check %s" lists them`, k.File, netdb.ErrDamaged, len(found), found[0], k.File)
	}
	return salvage.Book(k.File)
}

// present reads the book that is there, and says what it is in words. It refuses one that a
// daemon has open, and one that is another program's file.
func (k *TakeIn) present() (old salvage.Found, is string, err error) {
	path := k.Config.Book.Path
	switch st, err := os.Lstat(path); {
	case errors.Is(err, os.ErrNotExist):
		if log, err := exists(path + bookfile.LogEnd); err != nil || log {
			return old, "", errors.Join(err, fmt.Errorf(`%s-wal is there and the book itself is not; "ipamd rebuild" moves it away`, path))
		}
		return old, "there was none", nil
	case err != nil:
		return old, "", err
	case st.Mode().IsRegular() && st.Size() == 0:
		return old, "it was empty", nil
	}
	opts := k.Config.BookOptions()
	opts.ReadOnly = true
	book, err := netdb.Open(path, opts)
	switch {
	case err == nil:
		is = "it was whole"
		err = book.Close()
	case errors.Is(err, netdb.ErrOlderSchema):
		is = "it was whole, and an older ipamd's"
		if _, err = salvage.CheckMigrated(context.Background(), path, opts); errors.Is(err, netdb.ErrDamaged) {
			is, err = err.Error(), nil
		}
	case errors.Is(err, netdb.ErrDamaged), errors.Is(err, netdb.ErrOldBuild):
		is, err = err.Error(), nil
	}
	if err != nil {
		return old, "", err
	}
	old, err = salvage.Book(path)
	return old, is, err
}

// holder settles whose the new book is. A configuration that names a runner is right. Where
// it names none a book that was lost has been begun anew under a name that was made up, so
// the backup's is right, if it is of the same machine as the present one.
func (k *TakeIn) holder(m *merged, older, present salvage.Found) error {
	if a, b := older.MachineID, present.MachineID; a != "" && b != "" && a != b {
		return fmt.Errorf("%w: the %s was made on machine %s, the present book on %s: %s", netdb.ErrIdentity, k.source(), a, b, howToMove)
	}
	name := k.Config.Book.RunnerUID
	for what, of := range map[string]string{"the " + k.source(): older.RunnerUID, "the present book": present.RunnerUID} {
		if name != "" && of != "" && of != name {
			return fmt.Errorf("%w: %s is runner %q's, and the configuration says %q: %s", netdb.ErrIdentity, what, of, name, howToMove)
		}
	}
	if a, b := older.RunnerUID, present.RunnerUID; name == "" && a != "" && b != "" && a != b && older.MachineID == "" {
		return fmt.Errorf("%w: the %s is runner %q's, the present book %q's, and the former does not say of which machine it is: have book.runner_uid name the runner", netdb.ErrIdentity, k.source(), a, b)
	}
	k.Config.Book.RunnerUID = m.RunnerUID
	if name != "" {
		k.Config.Book.RunnerUID, m.RunnerUID = name, name
	}
	return nil
}

const howToMove = `a book goes to another runner or machine by being put in the place of the book there, and "ipamctl book adopt"`

// make builds the new book, and moves it in where that is confirmed.
func (k *TakeIn) make(ctx context.Context, s Swap, m *merged, was string) (*Report, error) {
	r := Rebuild{Config: k.Config, Open: k.Open, Preview: !k.Confirm, verb: k.verb(), passOver: m.passOver}
	r.done = func(made *restorer, report *Report) {
		report.Became, report.Unexplained = m.outcomes(made.Book, made.census), append(report.Unexplained, m.unexplained...)
	}
	report, err := r.replace(ctx, s, m.Found, `"ipamd rebuild"`, func(report *Report) {
		report.Broken, report.WasEpoch = was, m.Epoch
		report.Verb, report.File = k.verb(), k.File
	})
	if errors.Is(err, netdb.ErrIdentity) {
		err = fmt.Errorf("%w: %s", err, howToMove)
	}
	return report, err
}
