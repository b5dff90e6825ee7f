package socket

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"sync"
	"time"

	"github.com/ipamd/ipamd/internal/broadcast"
)

// checkEvery is the time between two looks at the socket's file.
const checkEvery = time.Second

// A Config describes the daemon's socket.
type Config struct {
	Path  string
	Mode  fs.FileMode
	GID   int        // -1: the process's own
	Given []*os.File // by systemd (sd_listen_fds(3)): one, or none
	Log   *slog.Logger
}

// A Socket listens at a path, also when its file is removed: then no caller reaches the
// socket that is listened on, and another is made in its place by Run. Its methods are
// safe for concurrent use.
type Socket struct {
	cfg Config

	mu     sync.Mutex
	inner  net.Listener
	file   fs.FileInfo // at the path, of inner
	closed bool
	err    error // why callers do not reach it; nil: they do
}

// Open takes over the socket that systemd holds for ipamd, or makes it. One that was
// given outlives ipamd: a caller that connects while ipamd restarts waits in its queue
// and is answered by the next daemon.
func Open(c Config) (*Socket, error) {
	inner, err := c.listen()
	if err != nil {
		return nil, err
	}
	file, err := os.Lstat(c.Path)
	if err != nil {
		return nil, errors.Join(err, inner.Close())
	}
	return &Socket{cfg: c, inner: inner, file: file}, nil
}

func (s *Socket) now() (inner net.Listener, closed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.inner, s.closed
}

// Accept implements [net.Listener]. It goes on where the socket was replaced.
func (s *Socket) Accept() (net.Conn, error) {
	for {
		inner, _ := s.now()
		conn, err := inner.Accept()
		if err == nil {
			return conn, nil
		}
		if other, closed := s.now(); closed || other == inner {
			return nil, err
		}
	}
}

// Close implements [net.Listener]. It may be called again.
func (s *Socket) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	if err := s.inner.Close(); !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

// Addr implements [net.Listener].
func (s *Socket) Addr() net.Addr { return &net.UnixAddr{Name: s.cfg.Path, Net: "unix"} }

// Drain accepts no more callers of a socket that outlives the daemon, and gives the last
// ones time to send their call. It returns early when ctx ends.
func (s *Socket) Drain(ctx context.Context) {
	inner, _ := s.now()
	if given, ok := inner.(*given); ok {
		given.drain(ctx)
	}
}

// lost reports that the file at the path is not the socket's any more.
func (s *Socket) lost() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	file, err := os.Lstat(s.cfg.Path)
	switch {
	case s.closed:
		return false
	case errors.Is(err, fs.ErrNotExist):
		return true
	}
	// Any other error says nothing about the file. An inode is not used again
	// while its socket is open.
	return err == nil && !os.SameFile(file, s.file)
}

// replace puts a socket in the place of the one whose file is lost.
func (s *Socket) replace(inner net.Listener) error {
	file, err := os.Lstat(s.cfg.Path)
	if err != nil {
		return errors.Join(err, inner.Close())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return inner.Close()
	}
	before := s.inner
	s.inner, s.file = inner, file
	return before.Close() // Accept goes on with the new one
}

// Run makes the socket's file again when it is removed, until ctx ends. What another
// process listens on stays: the log says so. It returns nil.
func (s *Socket) Run(ctx context.Context) error {
	for broadcast.Pause(ctx, checkEvery) {
		if !s.lost() {
			s.fail(nil) // the other may have gone and this one have been put back
			continue
		}
		inner, err := Listen(s.cfg.Path, s.cfg.Mode, s.cfg.GID)
		if err == nil {
			err = s.replace(inner)
		}
		s.fail(err)
		if err != nil {
			s.cfg.Log.Error("the socket's file was taken away, and cannot be made again: callers do not reach ipamd",
				"err", err, "next", s.cfg.next())
			continue
		}
		s.cfg.Log.Warn("the socket's file was taken away; it is made again", "socket", s.cfg.Path, "next", s.cfg.next())
	}
	return nil
}

func (s *Socket) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
}

// Err is why callers do not reach the daemon; nil when they do.
func (s *Socket) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		return nil
	}
	return fmt.Errorf("callers do not reach the socket: %w", s.err)
}

// next is what to do about a socket whose file was removed.
func (c Config) next() string {
	if len(c.Given) > 0 {
		return "systemctl restart ipamd.socket, which systemd listens on without its file"
	}
	return "find out what removes it"
}
