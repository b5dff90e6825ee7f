package bridge

import (
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ipamd/ipamd/internal/peercred"
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
func lockBridge(bridge string) (*lock, error) {
	until := time.Now().Add(forkMost)
	pid, says := 0, ""
	for first := true; ; first = false {
		l, err := tryLock(bridge)
		if !errors.Is(err, ErrLocked) {
			return l, err
		}
		over := time.Now().After(until)
		if first || over { // not each time: a connection stays in the holder's queue until it drains that
			pid, says = holder(bridge)
		}
		if over || !mayBeStarting(pid) {
			return nil, fmt.Errorf("%w%s", err, says)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// mayBeStarting reports whether a child that is being started may have the lock, by the process that
// took it: that one is this process or has ended, or it is not known.
func mayBeStarting(pid int) bool {
	return pid == 0 || pid == os.Getpid() || errors.Is(unix.Kill(pid, 0), unix.ESRCH)
}

// lockName is the name of the socket.
func lockName(bridge string) *unix.SockaddrUnix {
	return &unix.SockaddrUnix{Name: "@ipamd/bridge/" + bridge}
}

func lockSocket() (fd int, err error) {
	return unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
}

func tryLock(bridge string) (*lock, error) {
	fd, err := lockSocket()
	if err != nil {
		return nil, fmt.Errorf("lock bridge %s: %w", bridge, err)
	}
	err = unix.Bind(fd, lockName(bridge))
	if err == nil {
		err = unix.Listen(fd, 128)
	}
	if err == nil {
		return &lock{fd}, nil
	}
	_ = unix.Close(fd)
	if errors.Is(err, unix.EADDRINUSE) {
		err = ErrLocked
	}
	return nil, fmt.Errorf("lock bridge %s: %w", bridge, err)
}

// holder returns the process that has the lock, 0 where it is not known, and what to say of it
// behind [ErrLocked].
func holder(bridge string) (pid int, says string) {
	fd, err := lockSocket()
	if err != nil {
		return 0, ""
	}
	defer unix.Close(fd)
	if err := unix.Connect(fd, lockName(bridge)); err != nil {
		return 0, ""
	}
	cred, err := peercred.OfFD(fd)
	if err != nil {
		return 0, ""
	}
	if cred.Pid == 0 {
		return 0, ": one that is not in this pid namespace"
	}
	return int(cred.Pid), fmt.Sprintf(": pid %d", cred.Pid)
}

// drain closes the connections of processes that asked who has the lock. They stay in the queue until
// then, and while it is full no process is told.
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
