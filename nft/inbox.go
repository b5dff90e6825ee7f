package nft

import (
	"errors"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// An Inbox receives what the kernel sends a socket of netlink unasked. It is for one reader.
type Inbox struct {
	*netlink.Conn
	overran bool // and was not read empty since
}

// Next waits for messages; there may be none when the kernel reports an overrun. lost means that some
// are missing, and that the socket was read empty since: who looks at everything anew now misses nothing.
//
// A socket that had no room for a message receives none until all that is in it was read,
// and reports that once, when it begins. Who looks just then does not learn of what
// is dropped behind that look: a paused sandbox whose packet it was would sleep on.
func (i *Inbox) Next() (messages []netlink.Message, lost bool, err error) {
	messages, err = i.Receive()
	if errors.Is(err, unix.ENOBUFS) {
		i.overran, err = true, nil
	}
	if err != nil || !i.overran {
		return messages, false, err
	}
	empty, err := i.empty()
	i.overran = !empty
	return messages, empty, err
}

// empty reports whether nothing is left to be read. A further overrun, which the kernel may report
// here, is of what comes before that.
func (i *Inbox) empty() (is bool, err error) {
	raw, err := i.SyscallConn()
	if err != nil {
		return false, err
	}
	controlled := raw.Control(func(fd uintptr) {
		for {
			_, _, err = unix.Recvfrom(int(fd), make([]byte, 1), unix.MSG_PEEK|unix.MSG_DONTWAIT)
			if !errors.Is(err, unix.EINTR) && !errors.Is(err, unix.ENOBUFS) {
				break
			}
		}
	})
	switch {
	case controlled != nil:
		return false, controlled
	case errors.Is(err, unix.EAGAIN):
		return true, nil
	}
	return false, err
}
