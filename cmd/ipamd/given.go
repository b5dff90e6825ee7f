package main

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

	"github.com/ipamd/ipamd/server"
)

// listen returns the socket that systemd holds for ipamd (sd_listen_fds(3)),
// or makes it. One that was given outlives ipamd: whoever calls while ipamd
// restarts waits in its queue and is answered by the next one.
//
// Either is looked after by [program.keepListening].
func (p *program) listen() (net.Listener, error) {
	inner, err := p.listenOn()
	if err != nil {
		return nil, err
	}
	return keepSocket(p.cfg.Socket.Path, inner)
}

func (p *program) listenOn() (net.Listener, error) {
	switch len(p.given) {
	case 0:
		return server.Listen(p.cfg.Socket.Path, p.socketMode, p.socketGID)
	case 1:
		ln, err := p.takeOver(p.given[0])
		if errors.Is(err, fs.ErrNotExist) {
			p.log.Warn("systemd's socket has no file any more; ipamd makes one of its own", "socket", p.cfg.Socket.Path, "next", p.socketNext())
			return server.Listen(p.cfg.Socket.Path, p.socketMode, p.socketGID)
		}
		if err != nil {
			return nil, fmt.Errorf("take over the socket %s from systemd: %w", p.cfg.Socket.Path, err)
		}
		return ln, nil
	}
	return nil, fmt.Errorf("take over the socket %s from systemd: it gave %d files, and one is wanted", p.cfg.Socket.Path, len(p.given))
}

func (p *program) takeOver(f *os.File) (net.Listener, error) {
	defer f.Close()
	if err := p.suits(int(f.Fd())); err != nil {
		return nil, err
	}
	ln, err := net.FileListener(f)
	if err != nil {
		return nil, err
	}
	return &givenSocket{UnixListener: ln.(*net.UnixListener), closed: make(chan struct{})}, nil
}

// leaveTime is how long a caller has to say what it wants once its connection
// was taken from the queue. The next daemon cannot take it again: a caller
// that is cut there sees a reset, though its call was never begun.
const leaveTime = 250 * time.Millisecond

// A givenSocket belongs to systemd, and its queue to the next daemon too.
type givenSocket struct {
	*net.UnixListener
	once   sync.Once
	closed chan struct{}
}

// Accept takes the next caller from the queue, and after leave no more.
func (g *givenSocket) Accept() (net.Conn, error) {
	c, err := g.UnixListener.Accept()
	if errors.Is(err, os.ErrDeadlineExceeded) {
		<-g.closed
		return nil, net.ErrClosed
	}
	return c, err
}

// leave takes no more callers, and gives the last ones time to say what they
// want; it returns early when ctx ends.
func (g *givenSocket) leave(ctx context.Context) {
	if g.SetDeadline(time.Unix(1, 0)) != nil {
		return // it is closed
	}
	last := time.NewTimer(leaveTime)
	defer last.Stop()
	select {
	case <-last.C:
	case <-ctx.Done():
	}
}

// Close lets go of it. It stays open, and its file stays.
func (g *givenSocket) Close() error {
	g.once.Do(func() { close(g.closed) })
	return g.UnixListener.Close()
}

// suits reports why a socket is not the one that the configuration describes.
// A wider mode than the configuration's would let in whom it shuts out.
func (p *program) suits(fd int) error {
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
	c := p.cfg.Socket
	if at, ok := name.(*unix.SockaddrUnix); !ok || at.Name != c.Path {
		return fmt.Errorf("it is at %q; make ListenStream= of ipamd.socket and socket.path one path", at.Name)
	}
	var st unix.Stat_t
	if err := unix.Stat(c.Path, &st); err != nil {
		return fmt.Errorf("look at it: %w", err)
	}
	if mode := fs.FileMode(st.Mode).Perm(); mode != p.socketMode {
		return fmt.Errorf("its mode is %04o; make SocketMode= of ipamd.socket and socket.mode, which is %s, one mode", mode, c.Mode)
	}
	if p.socketGID >= 0 && st.Gid != uint32(p.socketGID) {
		return fmt.Errorf("its group is %d; make SocketGroup= of ipamd.socket and socket.group, which is %q, one group", st.Gid, c.Group)
	}
	if st.Uid != 0 && st.Uid != uint32(os.Geteuid()) {
		return fmt.Errorf("it belongs to user %d, who can let anybody in", st.Uid)
	}
	return nil
}
