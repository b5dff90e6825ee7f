package socket

import (
	"fmt"
	"net"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Credentials returns who made the other end of the connection (SO_PEERCRED),
// in our namespaces. For a connection that we dialled it is the listener.
func Credentials(c *net.UnixConn) (cred *unix.Ucred, err error) {
	err = onFD(c, func(fd int) (err error) {
		cred, err = unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("ask for its credentials: %w", err)
	}
	return cred, nil
}

// Groups returns the supplementary groups that the peer had when it
// connected (SO_PEERGROUPS, for which x/sys has no wrapper).
func Groups(c *net.UnixConn) ([]uint32, error) {
	gids := make([]uint32, 32)
	err := onFD(c, func(fd int) error {
		for {
			size := uint32(len(gids) * 4)
			_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_SOCKET, unix.SO_PEERGROUPS,
				uintptr(unsafe.Pointer(unsafe.SliceData(gids))), uintptr(unsafe.Pointer(&size)), 0)
			switch {
			case errno == unix.ERANGE && int(size) > len(gids)*4:
				gids = make([]uint32, size/4)
			case errno != 0:
				return errno
			default:
				gids = gids[:size/4]
				return nil
			}
		}
	})
	if err != nil {
		return nil, fmt.Errorf("ask for its groups: %w", err)
	}
	return gids, nil
}

func onFD(c *net.UnixConn, f func(fd int) error) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var inner error
	if err := raw.Control(func(fd uintptr) { inner = f(int(fd)) }); err != nil {
		return err
	}
	return inner
}
