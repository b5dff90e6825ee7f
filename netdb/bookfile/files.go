package bookfile

import (
	"errors"
	"fmt"
	"io/fs"

	"golang.org/x/sys/unix"
)

// Files are the three files that SQLite has open: the book, its log, and the
// log's index. Each is known by its identity, and its path has to lead to it:
// what is acknowledged in a file without a name, or with another one, is lost
// with the next start.
//
// All three count. Without the log's name its changes are lost; without the
// index's another process (a backup, a forgotten sqlite3) makes one of its own,
// and neither sees the locks of the other.
type Files struct {
	paths [3]string
	ids   [3]ident
}

// How many of the files: what a change is acknowledged in, and all.
const (
	BookAndLog = 2
	AllFiles   = 3
)

// Files returns the files that lie at the paths of a locked book now, just behind the moment
// at which SQLite opened them.
func (f *File) Files() (Files, error) {
	path := f.Name()
	found := Files{paths: [3]string{path, path + LogEnd, path + IndexEnd}}
	for i, p := range found.paths {
		id, err := identOf(p)
		if err != nil {
			return Files{}, fmt.Errorf("look at the book's files: %w", err)
		}
		found.ids[i] = id
	}
	if found.ids[0] != f.id {
		return Files{}, fmt.Errorf("%s: %w", path, errReplaced)
	}
	return found, nil
}

// Away says of those of the first n files whose paths lead elsewhere what is there, nil when
// none does, or when not all are open yet. What cannot be looked up (an I/O error) is no sign
// of that. Safe for concurrent use; a stat each.
func (f *Files) Away(n int) (gone []string) {
	if f.paths[0] == "" {
		return nil
	}
	for i, p := range f.paths[:n] {
		switch id, err := identOf(p); {
		case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ENOTDIR):
			gone = append(gone, p+" is gone")
		case err == nil && id != f.ids[i]:
			gone = append(gone, p+" is another file now")
		}
	}
	return gone
}

// BookLies reports that the book itself lies at its path.
func (f *Files) BookLies() bool {
	id, err := identOf(f.paths[0])
	return err == nil && id == f.ids[0]
}
