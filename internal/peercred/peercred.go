// Package peercred asks the kernel who is at the other end of a unix socket. Nothing that a peer sends
// can change the answer.
package peercred

import (
	"fmt"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Of returns who made the other end of a connection (SO_PEERCRED), in our namespaces. For a
// connection that we dialled it is who made the socket listen.
func Of(c syscall.Conn) (cred *unix.Ucred, err error) {
	err = onFD(c, func(fd int) (err error) {
		cred, err = OfFD(fd)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("ask for its credentials: %w", err)
	}
	return cred, nil
}

// OfFD is [Of] of a socket that is no connection of package net.
func OfFD(fd int) (*unix.Ucred, error) {
	return unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
}

// Groups returns the supplementary groups that the peer had when it
// connected (SO_PEERGROUPS, for which x/sys has no wrapper).
func Groups(c syscall.Conn) ([]uint32, error) {
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

// PIDFD returns a pidfd of the peer, which the caller closes (Linux 6.5; ENOPROTOOPT before).
func PIDFD(c syscall.Conn) (pidfd int, err error) {
	err = onFD(c, func(fd int) (err error) {
		pidfd, err = unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PEERPIDFD)
		return err
	})
	if err != nil {
		return -1, err
	}
	return pidfd, nil
}

func onFD(c syscall.Conn, f func(fd int) error) error {
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
