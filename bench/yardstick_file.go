package main

import (
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// An overwriter takes the yardstick F: the least that a durable change can
// cost in a directory.
type overwriter struct {
	file *os.File
	page [4096]byte
}

// newOverwriter makes a file of one page, durable with its length.
func newOverwriter(dir, name string) (*overwriter, error) {
	f, err := os.Create(filepath.Join(dir, name))
	if err != nil {
		return nil, err
	}
	o := &overwriter{file: f}
	if err := o.write(); err != nil {
		f.Close()
		return nil, err
	}
	return o, nil
}

// write overwrites the page in place and waits until it is durable.
func (o *overwriter) write() error {
	o.page[0]++ // not the same page twice
	if _, err := o.file.WriteAt(o.page[:], 0); err != nil {
		return err
	}
	if err := unix.Fdatasync(int(o.file.Fd())); err != nil {
		return fmt.Errorf("fdatasync %s: %w", o.file.Name(), err)
	}
	return nil
}

func (o *overwriter) close() error { return o.file.Close() }
