package sqlite

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/ipamd/ipamd/netdb/bookfile"
)

// applicationID marks the file as a lease book of ipamd: "ipam" in ASCII.
const applicationID = 0x6970616d

// headerSize is that of SQLite's file header and the header of the schema's
// page behind it, in bytes.
const headerSize = 108

// magic begins every SQLite file.
const magic = "SQLite format 3\x00"

// Find locks the file, or makes a new one that is empty, and looks at it before SQLite may touch it.
// unborn means that there is no book in it yet.
func (o *Opening) Find() (unborn bool, err error) {
	if !o.ReadOnly {
		if err := bookfile.Exposed(o.Path); err != nil { // before a new one is made
			return false, err
		}
	}
	if err := o.takeLock(); err != nil {
		return false, err
	}
	return o.checkHeader()
}

// takeLock locks the book's file, or a new one where there is none.
func (o *Opening) takeLock() (err error) {
	o.lock, err = bookfile.Lock(o.Path, false)
	if errors.Is(err, fs.ErrNotExist) {
		if orphan := o.checkOrphanLog(); orphan != nil || o.ReadOnly {
			return cmp.Or(orphan, err)
		}
		o.lock, err = bookfile.Lock(o.Path, true)
	}
	if errors.Is(err, bookfile.ErrNotRegular) {
		return fmt.Errorf("%w: %w", ErrNotABook, err)
	}
	return err
}

// checkHeader reads the first bytes of the file itself: another application's file must stay
// as it is.
func (o *Opening) checkHeader() (unborn bool, err error) {
	header := make([]byte, headerSize)
	switch n, err := o.lock.ReadAt(header, 0); {
	case err == io.EOF && n == 0:
		if err := o.checkOrphanLog(); err != nil || !o.ReadOnly {
			return true, err // without one: made by hand, or a first start that died at once
		}
		return false, fmt.Errorf("%w: it is empty", ErrNotABook)
	case err == nil && !o.ReadOnly && o.bornHalf(header):
		return true, o.checkOrphanLog()
	case err != nil && err != io.EOF:
		return false, err
	case err != nil || string(header[:len(magic)]) != magic:
		return false, fmt.Errorf("%w: it is no SQLite file", ErrNotABook)
	}
	unborn = o.rollsBack()
	if unborn && o.ReadOnly {
		return false, fmt.Errorf("%s-journal has to be rolled back first: start ipamd once", o.Path)
	}
	version, app := binary.BigEndian.Uint32(header[60:]), binary.BigEndian.Uint32(header[68:])
	if tables := binary.BigEndian.Uint16(header[103:]); app == 0 && version == 0 && tables == 0 {
		return unborn, nil // a first start that died before its migration; CheckWhole looks closer
	}
	if err := o.checkStamp(int(app), int(int32(version))); err != nil {
		return false, err
	}
	return unborn, nil
}

// journalMagic begins the rollback journal of a SQLite file.
const journalMagic = "\xd9\xd5\x05\xf9\x20\xa1\x63\xd7"

// bornHalf reports a first start that lost power while it wrote the header:
// the file has its size and not yet its first sector, and the journal beside
// it, which was synced before, lets SQLite start again from nothing.
func (o *Opening) bornHalf(header []byte) bool {
	return strings.Trim(string(header), "\x00") == "" && o.rollsBack()
}

// rollsBack reports a journal that SQLite rolls back when it opens the file. A book
// has one in its first moments only, before it is given its log.
func (o *Opening) rollsBack() bool {
	j, err := bookfile.OpenRegular(o.Path+bookfile.JournalEnd, os.O_RDONLY)
	if err != nil {
		return false
	}
	defer j.Close()
	start := make([]byte, len(journalMagic))
	_, err = io.ReadFull(j, start)
	return err == nil && string(start) == journalMagic
}

// checkOrphanLog refuses a log without its book. SQLite would delete it, and
// the changes in it were acknowledged.
func (o *Opening) checkOrphanLog() error {
	if st, err := os.Stat(o.Path + bookfile.LogEnd); err == nil && st.Size() > 0 {
		return fmt.Errorf("%w: its log is there, %s-wal, and the book itself is not", ErrDamaged, o.Path)
	}
	return nil
}

func (f *File) checkStamp(app, version int) error {
	if app != applicationID {
		return fmt.Errorf("%w: application id %#x is another program's", ErrNotABook, app)
	}
	if latest := len(f.Schema); version > latest || version < 0 {
		return fmt.Errorf("%w: its schema is %d, this one knows up to %d; upgrade ipamd",
			ErrNewerSchema, version, latest)
	}
	return nil
}

// Refuse names the file, and what to do about one that may be a broken book; who
// opens it for reading is looking it over already. A statement of ours that SQLite
// does not understand is about tables that are not there any more.
func (o *Opening) Refuse(err error) error {
	var se *sqlite.Error
	if errors.As(err, &se) && se.Code() == sqlite3.SQLITE_ERROR && !errors.Is(err, ErrDamaged) {
		err = fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	next := `"ipamd rebuild" moves it away and builds a new one from what is live`
	if !o.ReadOnly {
		next = fmt.Sprintf(`"ipamd check %s" looks it over, %s`, o.Path, next)
	}
	switch {
	case errors.Is(err, ErrOldBuild):
		return fmt.Errorf(`open %s: %w: run "ipamd rebuild", which moves it away and takes its leases over into a new one`, o.Path, err)
	case errors.Is(err, ErrDamaged):
		return fmt.Errorf("open %s: %w; %s", o.Path, err, next)
	case errors.Is(err, ErrNotABook) && o.lock != nil:
		return fmt.Errorf("open %s: %w; give another path; or, if it was the book, %s, with --force where nothing of it can be read",
			o.Path, err, next)
	}
	return fmt.Errorf("open %s: %w", o.Path, err)
}
