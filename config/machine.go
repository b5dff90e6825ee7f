package config

import (
	"context"
	"io/fs"
	"os"

	"github.com/ipamd/ipamd/netdb/bookfile"
)

// CheckMachine returns [Problems] when this machine lacks what a value of the
// configuration asks for; path is the file that it was read from. It is what a start
// refuses before it touches anything, and what `ipamd config` says.
func (c Config) CheckMachine(ctx context.Context, path string) error {
	var ps Problems
	if _, err := c.Socket.GID(); err != nil {
		ps.add("socket.group", "%v", err)
	}
	if is, err := os.Stat(c.Book.Path); err == nil && is.IsDir() {
		ps.add("book.path", "%q is a folder", c.Book.Path)
	}
	if err := bookfile.Exposed(c.Book.Path); err != nil {
		ps.add("book.path", "%v", err)
	}
	if is, err := os.Lstat(c.Socket.Path); err == nil && is.Mode().Type() != fs.ModeSocket {
		ps.add("socket.path", "%q is there, and is no socket", c.Socket.Path)
	}
	if len(ps) > 0 && path != "" {
		doc, err := readWithin(ctx, path)
		if err != nil {
			doc = nil // then the place is the file
		}
		ps.place(path, outlineOf(doc))
	}
	return ps.err()
}
