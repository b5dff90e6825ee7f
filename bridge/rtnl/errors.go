package rtnl

import (
	"errors"

	"golang.org/x/sys/unix"
)

var (
	// ErrClosed means that what asks was closed.
	ErrClosed = errors.New("bridge reader is closed")
	// ErrNoNetnsID means that no link leads from the bridge's namespace to
	// that one, so the kernel has no id for it.
	ErrNoNetnsID = errors.New("no link leads to this network namespace")

	// ErrInterrupted means that the tables changed while they were listed:
	// something may be missing from the list. Ask again.
	ErrInterrupted = errors.New("the kernel's tables changed while they were listed")
	// ErrCutShort means that a list was given up because it is too long. Without
	// [Socket.Redial] nothing more can be asked on the socket.
	ErrCutShort = errors.New("the list is too long")
	// ErrTruncated means that the kernel's answer has a message that is longer than any that
	// is read. Asked again, it is as long: a guest decides how much there is to say of its links.
	ErrTruncated = errors.New("the kernel's answer is too long")
	// ErrUnreadable means that the kernel's answer about a link makes no sense, or that a guest may
	// have written a part of it. Asked again, it is the same.
	ErrUnreadable = errors.New("the kernel's answer about a link cannot be believed")
	// ErrOverrun means that the kernel had more news than the socket holds.
	ErrOverrun = errors.New("kernel news was lost")
)

// IsGone reports that the kernel answered, and the answer was that the link,
// namespace or entry is not there.
func IsGone(err error) bool {
	return errors.Is(err, unix.ENODEV) || errors.Is(err, unix.ENOENT)
}
