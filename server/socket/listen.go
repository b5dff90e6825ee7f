package socket

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/ipamd/ipamd/internal/peercred"
)

// Listen makes the socket at path, with that mode and group; gid -1 keeps the
// process's own group. A socket that no process listens on is replaced; one that
// a process listens on is refused with the holder's pid, and so is any other file.
// The parent folder is made when it is missing.
//
// The socket is made in a folder that only its owner can enter and is moved
// to path once its mode and group are right: at no moment can a stranger
// connect. Closing the listener removes the socket, unless another has taken
// its place.
func Listen(path string, mode fs.FileMode, gid int) (net.Listener, error) {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("make the socket's folder: %w", err)
	}
	if err := unheld(path); err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	private, err := os.MkdirTemp(dir, ".")
	if err != nil {
		return nil, fmt.Errorf("make a folder for the socket: %w", err)
	}
	defer os.RemoveAll(private)
	temp := filepath.Join(private, "s")
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: temp, Net: "unix"})
	if errors.Is(err, unix.EINVAL) {
		return nil, fmt.Errorf("listen on %s: the path is too long for a socket, which may have %d bytes",
			path, len(unix.RawSockaddrUnix{}.Path)-1)
	}
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	ln.SetUnlinkOnClose(false)
	l := &listener{UnixListener: ln, path: path}
	if err := l.place(temp, mode, gid); err != nil {
		ln.Close()
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	return l, nil
}

// unheld reports why the path cannot be taken.
func unheld(path string) error {
	switch fi, err := os.Lstat(path); {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case fi.Mode().Type() != fs.ModeSocket:
		return fmt.Errorf("there is a file that is no socket")
	}
	c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: path, Net: "unix"})
	switch {
	case errors.Is(err, unix.ECONNREFUSED), errors.Is(err, fs.ErrNotExist):
		return nil // stale, or removed just now
	case errors.Is(err, unix.EAGAIN):
		return fmt.Errorf("another process listens there, and its backlog is full")
	case err != nil:
		return err
	}
	defer c.Close()
	cred, err := peercred.Of(c)
	if err != nil {
		return fmt.Errorf("another process listens there: %w", err)
	}
	return fmt.Errorf("process %d listens there", cred.Pid)
}

// A listener removes its file when it is closed.
type listener struct {
	*net.UnixListener
	path string
	file fs.FileInfo
	once sync.Once
}

func (l *listener) place(temp string, mode fs.FileMode, gid int) (err error) {
	if err := os.Chown(temp, -1, gid); err != nil {
		return err
	}
	if err := os.Chmod(temp, mode.Perm()); err != nil {
		return err
	}
	if l.file, err = os.Lstat(temp); err != nil {
		return err
	}
	return os.Rename(temp, l.path)
}

func (l *listener) Addr() net.Addr { return &net.UnixAddr{Name: l.path, Net: "unix"} }

func (l *listener) Close() error {
	l.once.Do(func() {
		if now, err := os.Lstat(l.path); err == nil && os.SameFile(now, l.file) {
			os.Remove(l.path)
		}
	})
	return l.UnixListener.Close()
}
