package socket

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

func (c Config) listen() (net.Listener, error) {
	switch len(c.Given) {
	case 0:
		return Listen(c.Path, c.Mode, c.GID)
	case 1:
		ln, err := c.takeOver(c.Given[0])
		if errors.Is(err, fs.ErrNotExist) {
			c.Log.Warn("systemd's socket has no file any more; ipamd makes one of its own", "socket", c.Path, "next", c.next())
			return Listen(c.Path, c.Mode, c.GID)
		}
		if err != nil {
			return nil, fmt.Errorf("take over the socket %s from systemd: %w", c.Path, err)
		}
		return ln, nil
	}
	return nil, fmt.Errorf("take over the socket %s from systemd: it gave %d files, and one is wanted", c.Path, len(c.Given))
}

func (c Config) takeOver(f *os.File) (net.Listener, error) {
	defer f.Close()
	if err := c.suits(int(f.Fd())); err != nil {
		return nil, err
	}
	ln, err := net.FileListener(f)
	if err != nil {
		return nil, err
	}
	return &given{UnixListener: ln.(*net.UnixListener), closed: make(chan struct{})}, nil
}

// drainTime is how long a caller has to say what it wants once its connection
// was taken from the queue. The next daemon cannot take it again: a caller
// that is cut there sees a reset, though its call was never begun.
const drainTime = 250 * time.Millisecond

// A given belongs to systemd, and its queue to the next daemon too.
type given struct {
	*net.UnixListener
	once   sync.Once
	closed chan struct{}
}

// Accept takes the next caller from the queue, and after drain none.
func (g *given) Accept() (net.Conn, error) {
	c, err := g.UnixListener.Accept()
	if errors.Is(err, os.ErrDeadlineExceeded) {
		<-g.closed
		return nil, net.ErrClosed
	}
	return c, err
}

// drain accepts no more callers, and gives the last ones time to say what they
// want; it returns early when ctx ends.
func (g *given) drain(ctx context.Context) {
	if g.SetDeadline(time.Unix(1, 0)) != nil {
		return // it is closed
	}
	last := time.NewTimer(drainTime)
	defer last.Stop()
	select {
	case <-last.C:
	case <-ctx.Done():
	}
}

// Close closes this end. The socket stays open at systemd, and its file stays.
func (g *given) Close() error {
	g.once.Do(func() { close(g.closed) })
	return g.UnixListener.Close()
}

// suits reports why a socket is not the one that the configuration describes.
// A wider mode than the configuration's would let in whom it shuts out.
func (c Config) suits(fd int) error {
	for _, want := range []struct {
		option, value int
		what          string
	}{
		{unix.SO_DOMAIN, unix.AF_UNIX, "a unix socket"},
		{unix.SO_TYPE, unix.SOCK_STREAM, "a stream socket (ListenStream=)"},
		{unix.SO_ACCEPTCONN, 1, "a listening socket (Accept=no)"},
	} {
		if got, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, want.option); err != nil || got != want.value {
			return errors.Join(fmt.Errorf("it is not %s", want.what), err)
		}
	}
	name, err := unix.Getsockname(fd)
	if err != nil {
		return fmt.Errorf("ask for its path: %w", err)
	}
	if at, ok := name.(*unix.SockaddrUnix); !ok || at.Name != c.Path {
		return fmt.Errorf("it is at %q; make ListenStream= of ipamd.socket and socket.path one path", at.Name)
	}
	var st unix.Stat_t
	if err := unix.Stat(c.Path, &st); err != nil {
		return fmt.Errorf("look at it: %w", err)
	}
	if mode := fs.FileMode(st.Mode).Perm(); mode != c.Mode {
		return fmt.Errorf("its mode is %04o; make SocketMode= of ipamd.socket and socket.mode, which is %04o, one mode", mode, c.Mode)
	}
	if c.GID >= 0 && st.Gid != uint32(c.GID) {
		return fmt.Errorf("its group is %d; make SocketGroup= of ipamd.socket and socket.group, which is %d, one group", st.Gid, c.GID)
	}
	if st.Uid != 0 && st.Uid != uint32(os.Geteuid()) {
		return fmt.Errorf("it belongs to user %d, who can change its permissions", st.Uid)
	}
	return nil
}
