package bridge

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// A lock keeps a second process from looking after the same bridge: two books
// on one bridge would hand out the same addresses. It is a listening unix
// socket with an abstract name, which exists once in each network namespace
// and vanishes with its process, so there is no stale file to remove.
type lock struct{ fd int }

// forkMost is how long a child that is being started may keep the lock of a Bridge that
// was closed already: it has a copy of each descriptor until it executes its program.
const forkMost = time.Second

// lockBridge takes the lock. The error names the process that has it and
// wraps ErrLocked. Call it inside the bridge's namespace.
func lockBridge(bridge string) (l *lock, err error) {
	for until := time.Now().Add(forkMost); ; time.Sleep(10 * time.Millisecond) {
		if l, err = tryLock(bridge); !errors.Is(err, ErrLocked) || time.Now().After(until) {
			return l, err
		}
	}
}

func tryLock(bridge string) (*lock, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("lock bridge %s: %w", bridge, err)
	}
	addr := &unix.SockaddrUnix{Name: "@ipamd/bridge/" + bridge}
	err = unix.Bind(fd, addr)
	if err == nil {
		err = unix.Listen(fd, 128)
	}
	switch {
	case err == nil:
		return &lock{fd}, nil
	case errors.Is(err, unix.EADDRINUSE):
		err = fmt.Errorf("lock bridge %s: %w%s", bridge, ErrLocked, holder(fd, addr))
	default:
		err = fmt.Errorf("lock bridge %s: %w", bridge, err)
	}
	_ = unix.Close(fd)
	return nil, err
}

// holder names the process that listens at addr, as far as it can be known.
func holder(fd int, addr unix.Sockaddr) string {
	if err := unix.Connect(fd, addr); err != nil {
		return ""
	}
	cred, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		return ""
	}
	if cred.Pid == 0 {
		return ": one that is not in this pid namespace"
	}
	return fmt.Sprintf(": pid %d", cred.Pid)
}

// drain closes the connections that asked for our pid. They stay in the queue until
// then, and a full one answers no process.
func (l *lock) drain() {
	for {
		fd, _, err := unix.Accept4(l.fd, unix.SOCK_CLOEXEC)
		if err != nil {
			return
		}
		_ = unix.Close(fd)
	}
}

func (l *lock) close() { _ = unix.Close(l.fd) }
