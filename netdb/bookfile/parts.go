// Package bookfile keeps a book on disk beside what SQLite does to its pages: its names and
// its parts, its lock, the note of its last revision, its log where SQLite would stop
// reading it, and who else may change it.
//
// It knows bytes and names, and no row: what a book says, and whether it may be opened, is
// netdb's to decide. What it opens is a regular file, and no link that another user has
// put there.
package bookfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// What the parts of a book have behind its name.
const (
	LogEnd     = "-wal"
	IndexEnd   = "-shm"     // of the log
	MarkEnd    = "-mark"    // see [Mark]
	JournalEnd = "-journal" // which a book has in its first moments only
)

// Parts are what is appended to a book's name: the file itself, its log, the
// log's index, and the mark. The file goes first. A crash behind it leaves a log
// without its book, which an opening refuses and the next MoveAside takes away; a
// book without its log would open, and be older than what was acknowledged.
var Parts = [...]string{"", LogEnd, IndexEnd, MarkEnd}

// What a rebuild, a restore and an import have behind the name of the book while they make
// another one beside it. Whatever has these names is theirs, and is deleted by the next.
const (
	RebuildingEnd = ".rebuilding" // while it is made
	RebuiltEnd    = ".rebuilt"    // once it is whole and durable
)

// RealPath returns the path under which SQLite keeps log and index beside the
// real file, whatever symlinks the given one goes through. A file that is not
// there yet is resolved by its folder; a folder that is not there is left as it
// is. A link to a file that is not there is refused: it is more likely a disk
// that is not mounted than a wish for a new book.
func RealPath(path string) (string, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	real, err := filepath.EvalSymlinks(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return real, err
	}
	if _, err := os.Lstat(path); err == nil {
		return "", fmt.Errorf("%s is a link to a file that is not there", path)
	}
	dir, err := filepath.EvalSymlinks(filepath.Dir(path))
	if errors.Is(err, fs.ErrNotExist) {
		return path, nil
	}
	return filepath.Join(dir, filepath.Base(path)), err
}

// SyncDir makes the names in a folder survive power loss, as a sync of a file
// does for its bytes.
func SyncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	defer dir.Close()
	if err := dir.Sync(); err != nil {
		return fmt.Errorf("sync %s: %w", path, err)
	}
	return nil
}
