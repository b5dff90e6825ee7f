package socket

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"

	"golang.org/x/sys/unix"

	"github.com/ipamd/ipamd/internal/peercred"
)

var (
	errOtherUsers = errors.New("is in another user namespace")
	errOtherPids  = errors.New("is in a pid namespace that we cannot see")
	errEnded      = errors.New("has ended")
)

// Users returns our own user namespace, as /proc spells it.
func Users() (string, error) {
	userns, err := os.Readlink("/proc/self/ns/user")
	if err != nil {
		return "", fmt.Errorf("read our own user namespace: %w", err)
	}
	return userns, nil
}

// SameUsers reports why the uid of a peer with that pid cannot be taken at its word: it is not in
// the user namespace ours. That is read by pid, and the pid is held still by the socket's pidfd
// (Linux 6.5): a process that connects and ends cannot lend its judgement to the process that gets
// its pid next.
func SameUsers(c *net.UnixConn, pid int32, ours string) error {
	if pid == 0 {
		return errOtherPids
	}
	pidfd, err := peercred.PIDFD(c)
	switch {
	case errors.Is(err, unix.ENOPROTOOPT): // an older kernel: pidfd is -1
	case errors.Is(err, unix.ESRCH), errors.Is(err, unix.EINVAL):
		return errEnded
	case err != nil:
		return fmt.Errorf("hold its pid: %w", err)
	default:
		defer unix.Close(pidfd)
	}
	theirs, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/user", pid))
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ESRCH):
		return errEnded
	case err != nil:
		return fmt.Errorf("its user namespace is unreadable: %w", errors.Unwrap(err))
	}
	if pidfd >= 0 {
		if err := alive(pidfd); err != nil {
			return err
		}
	}
	if theirs != ours {
		return errOtherUsers
	}
	return nil
}

// alive asks by poll, which needs no right to signal the process.
func alive(pidfd int) error {
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}, 0)
		switch {
		case errors.Is(err, unix.EINTR): // the Go scheduler's own signals
		case err != nil:
			return fmt.Errorf("ask whether it lives: %w", err)
		case n != 0:
			return errEnded
		default:
			return nil
		}
	}
}
