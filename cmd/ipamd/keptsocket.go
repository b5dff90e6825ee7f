package main

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"sync"
	"time"

	"github.com/ipamd/ipamd/server"
)

// keepEvery is the time between two looks at the socket's file.
const keepEvery = time.Second

// A keptSocket listens at a path, also when its file was taken away: then nobody
// can reach the socket that is listened on, and another is made in its place. Its
// methods are safe for concurrent use.
type keptSocket struct {
	path string

	mu     sync.Mutex
	inner  net.Listener
	file   fs.FileInfo // at the path, of inner
	closed bool
	err    error // why callers do not reach it; nil: they do
}

// keepSocket returns a listener that looks after the file of inner.
func keepSocket(path string, inner net.Listener) (*keptSocket, error) {
	file, err := os.Lstat(path)
	if err != nil {
		return nil, errors.Join(err, inner.Close())
	}
	return &keptSocket{path: path, inner: inner, file: file}, nil
}

func (k *keptSocket) now() (inner net.Listener, closed bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.inner, k.closed
}

// Accept implements [net.Listener]. It goes on where the socket was replaced.
func (k *keptSocket) Accept() (net.Conn, error) {
	for {
		inner, _ := k.now()
		conn, err := inner.Accept()
		if err == nil {
			return conn, nil
		}
		if other, closed := k.now(); closed || other == inner {
			return nil, err
		}
	}
}

// Close implements [net.Listener].
func (k *keptSocket) Close() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.closed = true
	return k.inner.Close()
}

// Addr implements [net.Listener].
func (k *keptSocket) Addr() net.Addr { return &net.UnixAddr{Name: k.path, Net: "unix"} }

// leave takes no more callers of a socket that outlives the daemon.
func (k *keptSocket) leave(ctx context.Context) {
	if inner, _ := k.now(); inner != nil {
		if given, ok := inner.(*givenSocket); ok {
			given.leave(ctx)
		}
	}
}

// lost reports that the file at the path is not the socket's any more.
func (k *keptSocket) lost() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	file, err := os.Lstat(k.path)
	switch {
	case k.closed:
		return false
	case errors.Is(err, fs.ErrNotExist):
		return true
	}
	// Any other error says nothing about the file. An inode is not used again
	// while its socket is open.
	return err == nil && !os.SameFile(file, k.file)
}

// replace puts a socket in the place of the one whose file is lost.
func (k *keptSocket) replace(inner net.Listener) error {
	file, err := os.Lstat(k.path)
	if err != nil {
		return errors.Join(err, inner.Close())
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed {
		return inner.Close()
	}
	before := k.inner
	k.inner, k.file = inner, file
	return before.Close() // Accept goes on with the new one
}

// keepListening makes the socket's file again when it is taken away, until ctx
// ends. What another process listens on stays: the log says so, once.
func (p *program) keepListening(ctx context.Context) error {
	k, ok := p.listener.(*keptSocket)
	if !ok {
		return nil
	}
	tick := time.NewTicker(keepEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if !k.lost() {
			k.fail(nil) // the other may have gone and this one have been put back
			continue
		}
		inner, err := server.Listen(p.cfg.Socket.Path, p.socketMode, p.socketGID)
		if err == nil {
			err = k.replace(inner)
		}
		k.fail(err)
		if err != nil {
			p.log.Error("the socket's file was taken away, and cannot be made again: callers do not reach ipamd",
				"err", err, "next", p.socketNext())
			continue
		}
		p.log.Warn("the socket's file was taken away; it is made again", "socket", p.cfg.Socket.Path, "next", p.socketNext())
	}
}

func (k *keptSocket) fail(err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.err = err
}

// unreached says why callers do not reach the daemon; "" when they do.
func (p *program) unreached() string {
	k, ok := p.listener.(*keptSocket)
	if !ok {
		return ""
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.err == nil {
		return ""
	}
	return "callers do not reach the socket: " + k.err.Error()
}

// socketNext is what to do about a socket whose file was taken away.
func (p *program) socketNext() string {
	if len(p.given) > 0 {
		return "systemctl restart ipamd.socket, which systemd listens on without its file"
	}
	return "find out what removes it"
}
