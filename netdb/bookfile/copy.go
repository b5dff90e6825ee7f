package bookfile

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// ReadThrough reads the book and its log to their ends. This process may not have the
// book open: closing a descriptor drops SQLite's locks.
func ReadThrough(path string) error {
	for _, name := range []string{path, path + LogEnd} {
		f, err := OpenRegular(name, os.O_RDONLY)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		_, err = io.Copy(io.Discard, f)
		if err := errors.Join(err, f.Close()); err != nil {
			return err
		}
	}
	return nil
}

// longestLog bounds a log that is read into memory, in bytes.
const longestLog = 2 << 30

// Copy copies parts of a book to another name. One that is not there is an error for the
// book itself, and none for the others. It fails rather than fill the disk that the copy is
// made on.
func Copy(ctx context.Context, book, to string, parts ...string) error {
	for _, part := range parts {
		if err := copyPart(ctx, book, to, part); err != nil {
			return err
		}
	}
	return nil
}

func copyPart(ctx context.Context, book, copied, part string) error {
	from, to := book+part, copied+part
	in, err := OpenRegular(from, os.O_RDONLY)
	if errors.Is(err, fs.ErrNotExist) && part != "" {
		return nil
	}
	if err != nil {
		return err
	}
	defer in.Close()
	st, err := in.Stat()
	if err != nil {
		return err
	}
	var disk unix.Statfs_t
	if err := unix.Statfs(filepath.Dir(to), &disk); err != nil {
		return err
	}
	if room := int64(disk.Bavail) * disk.Bsize / 2; st.Size() > room {
		return fmt.Errorf("%s has %d bytes, and a copy in %s may have %d: name another folder by TMPDIR", from, st.Size(), filepath.Dir(to), room)
	}
	if part != "" && st.Size() > longestLog {
		return fmt.Errorf("%s has %d bytes, and a log that can be read up to %d: move it away to go on without it", from, st.Size(), longestLog)
	}
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, io.LimitReader(untilDone{ctx, in}, st.Size()))
	return errors.Join(err, out.Close())
}

// untilDone reads until a context ends.
type untilDone struct {
	ctx context.Context
	io.Reader
}

func (r untilDone) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.Reader.Read(p)
}
