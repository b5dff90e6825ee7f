package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// A logIndex is the index of a book's log, which SQLite keeps in memory that
// everybody with the book open shares (https://sqlite.org/walformat.html,
// "WAL-Index Header"). Looking into it asks nobody and delays nobody.
type logIndex struct{ shared []byte }

// logIndex maps that of the running daemon, read-only.
func (d *daemon) logIndex() (*logIndex, error) {
	f, err := os.Open(filepath.Join(filepath.Dir(d.client.Socket), "book.db-shm"))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	const header = 136 // bytes; and the kernel maps whole pages
	shared, err := unix.Mmap(int(f.Fd()), 0, header, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map %s: %w", f.Name(), err)
	}
	l := &logIndex{shared}
	if version := binary.NativeEndian.Uint32(l.shared); version != 3007000 {
		return nil, errors.Join(fmt.Errorf("map %s: version %d of the index is unknown", f.Name(), version), l.close())
	}
	return l, nil
}

func (l *logIndex) close() error { return unix.Munmap(l.shared) }

// commits is how many commits the book's log has seen; it wraps. One counts
// once its sync is over, before anybody is told of it.
func (l *logIndex) commits() uint32 {
	const change = 8 // iChange
	return binary.NativeEndian.Uint32(l.shared[change:])
}
