package netdb

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/netdb/bookfile"
)

// A Backup is a copy of a book, whole as it was at one revision.
type Backup struct {
	Path  string
	Bytes int64
	Rev   int64
	Epoch string
}

// Backup copies the book to a file while changes go on: it is as the book was at one
// revision, checked, synced, and readable by its owner only. It comes to path whole or
// not at all, and never over another file unless replace says so; a crash leaves
// path+".partial" at the most, which the next backup to path replaces. A target that
// cannot be written is an [ipam.FieldError], and says nothing about the book. One backup is
// made at a time, else the answer is [ipam.ErrState].
func (b *Book) Backup(ctx context.Context, path string, replace bool) (out Backup, err error) {
	if !b.backing.TryLock() {
		return out, fmt.Errorf("back up the book: %w: another backup is being made", ipam.ErrState)
	}
	defer b.backing.Unlock()
	if err := errors.Join(b.store.mayBackUp(path, replace), b.store.Look(bookfile.AllFiles)); err != nil {
		return out, err // another book may lie where its own did
	}
	partial := path + ".partial"
	if err := makePartial(partial); err != nil {
		return out, ipam.Invalid("path", "%v", err)
	}
	defer func() {
		if err == nil {
			return
		}
		if bad := os.Remove(partial); !errors.Is(bad, fs.ErrNotExist) {
			err = errors.Join(err, bad)
		}
	}()
	if out, err = b.store.copyInto(ctx, partial); err != nil {
		return out, err
	}
	flags := uint(unix.RENAME_NOREPLACE)
	if replace {
		flags = 0
	}
	if err := unix.Renameat2(unix.AT_FDCWD, partial, unix.AT_FDCWD, path, flags); err != nil {
		return out, ipam.Invalid("path", "name it %s: %v", path, err)
	}
	out.Path = path
	if err := bookfile.SyncDir(filepath.Dir(path)); err != nil { // its name may not outlast a power loss
		err = ipam.Invalid("path", "%v", err)
		if !replace { // else it is the only copy by now
			err = errors.Join(err, os.Rename(path, partial))
		}
		return out, err
	}
	return out, nil
}

// mayBackUp refuses a target that is no new file.
func (s *store) mayBackUp(path string, replace bool) error {
	if !filepath.IsAbs(path) || filepath.Clean(path) != path {
		return ipam.Invalid("path", "%.200q is not an absolute, clean path", path)
	}
	st, err := os.Lstat(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return ipam.Invalid("path", "%v", err)
	}
	real := path
	if dir, err := filepath.EvalSymlinks(filepath.Dir(path)); err == nil {
		real = filepath.Join(dir, filepath.Base(path))
	}
	for _, part := range append(bookfile.Parts[:], bookfile.JournalEnd) {
		own, missing := os.Stat(s.Path + part)
		if real == s.Path+part || err == nil && missing == nil && os.SameFile(st, own) {
			return ipam.Invalid("path", "%s is the book itself, or beside it as a part", path)
		}
		if real == s.Path+bookfile.RebuildingEnd+part || real == s.Path+bookfile.RebuiltEnd+part {
			return ipam.Invalid("path", "%s is where a rebuild makes its book, and it is deleted by the next one; name another", path)
		}
	}
	switch {
	case err != nil:
		return nil
	case !st.Mode().IsRegular():
		return ipam.Invalid("path", "%s is there, and no regular file", path)
	case !replace:
		return ipam.Invalid("path", "%s is there already; name another, or say that it may be replaced", path)
	}
	return nil
}

// makePartial makes an empty file in the place of one that a crash left.
func makePartial(path string) error {
	if st, err := os.Lstat(path); err == nil && st.Mode().IsRegular() {
		if err := os.Remove(path); err != nil {
			return err
		}
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	return f.Close()
}

// copyInto fills an empty file with the book as it is, makes it durable, and reads it as
// any book.
func (s *store) copyInto(ctx context.Context, path string) (out Backup, err error) {
	if err := s.VacuumInto(ctx, path); err != nil {
		if ctx.Err() != nil {
			return out, fmt.Errorf("back up the book: %w", ctx.Err())
		}
		return out, ipam.Invalid("path", "the copy cannot be written: %v", err) // not s.classify: it is not the book's disk
	}
	if out.Bytes, err = sealCopy(path); err != nil {
		return out, ipam.Invalid("path", "%v", err)
	}
	opts := *s.opts
	opts.ReadOnly, opts.OnCommit = true, nil
	c, err := Open(path, opts)
	if err != nil {
		return out, fmt.Errorf("read the backup: %w", err)
	}
	found, err := c.Check(ctx)
	out.Rev, out.Epoch = c.Rev(), c.Epoch()
	if err := errors.Join(err, c.Close()); err != nil {
		return out, fmt.Errorf("check the backup: %w", err)
	}
	if is := s.whose().Epoch; out.Epoch != is {
		return out, fmt.Errorf("check the backup: %w: it is of epoch %s, the book of %s", ErrMoved, out.Epoch, is)
	}
	if len(found) > 0 {
		return out, fmt.Errorf("check the backup: %w: %s", ErrDamaged, found[0])
	}
	return out, nil
}

// sealCopy gives a copy the journal mode of every book (SQLite's file format, section
// 1.3.3), which VACUUM does not copy, and syncs it.
func sealCopy(path string) (size int64, err error) {
	f, err := bookfile.OpenRegular(path, os.O_RDWR)
	if err != nil {
		return 0, err
	}
	_, err = f.WriteAt([]byte{2, 2}, 18)
	if err == nil {
		err = f.Sync()
	}
	st, bad := f.Stat()
	if err := errors.Join(err, bad, f.Close()); err != nil {
		return 0, err
	}
	return st.Size(), nil
}
