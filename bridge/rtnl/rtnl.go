package rtnl

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// A Socket asks the kernel's rtnetlink, or another of the netlink family, one
// question at a time; it is not safe for concurrent use. It has a method for each message.
//
// The request loop is our own because the kernel may put the mark of an
// interrupted dump on the closing message only (the last address was skipped
// and nothing followed), and mdlayher/netlink drops that message. Attributes
// are encoded and decoded by that library.
type Socket struct {
	fd  int
	seq uint32
	buf []byte
	cut bool // a list was given up, and the kernel would go on with it

	// Redial, unless nil, opens the socket that takes over after ErrCutShort, or a list's
	// ErrTruncated, when the next question is asked.
	Redial func() (*Socket, error)
}

// ReplyTimeout bounds the wait for a reply. The kernel answers in the
// caller's own time; only a broken one takes longer.
const ReplyTimeout = 10 // seconds

// mostMessage is how much of a message is read, in bytes. A guest may give a link
// alternative names of 64 KiB, which is less, and a macvlan any number of source MACs, which
// may be more: the kernel cuts such a message off.
const mostMessage = 128 << 10

// Dial opens a socket (unix.NETLINK_ROUTE, ...) in the thread's namespace,
// with strict checking: the kernel then refuses a filter that it does not know
// instead of answering for its own namespace.
func Dial(protocol int) (*Socket, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, protocol)
	if err != nil {
		return nil, fmt.Errorf("open netlink socket: %w", err)
	}
	err = errors.Join(
		unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_GET_STRICT_CHK, 1),
		unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: ReplyTimeout}),
		unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}),
	)
	if err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("set up netlink socket: %w", err)
	}
	return Over(fd), nil
}

// Over asks on a descriptor that is open, which is the socket's from then on.
func Over(fd int) *Socket { return &Socket{fd: fd, buf: make([]byte, mostMessage)} }

// Asked is how many questions were asked.
func (r *Socket) Asked() uint32 { return r.seq }

func (r *Socket) Close() { _ = unix.Close(r.fd) }

// dump lists a table; each gets every message's body and must not keep it.
// ErrInterrupted means that the list may lack something.
func (r *Socket) dump(typ uint16, body []byte, each func(body []byte) error) error {
	return r.ask(typ, unix.NLM_F_DUMP, body, each)
}

// get looks one object up. An answer without one is an error, and not an
// object that is empty: what could not be asked is not "not there".
func (r *Socket) get(typ uint16, body []byte, take func(body []byte) error) error {
	got := false
	err := r.ask(typ, 0, body, func(body []byte) error {
		got = true
		return take(body)
	})
	if err == nil && !got {
		return errors.New("netlink answered without what was asked for")
	}
	return err
}

// change does something and waits until it is done.
func (r *Socket) change(typ uint16, flags uint16, body []byte) error {
	return r.ask(typ, flags|unix.NLM_F_ACK, body, nil)
}

func (r *Socket) ask(typ uint16, flags uint16, body []byte, each func([]byte) error) error {
	if r.cut && r.Redial != nil {
		next, err := r.Redial()
		if err != nil {
			return err
		}
		r.Close()
		r.fd, r.cut = next.fd, false
	}
	r.seq++
	msg := make([]byte, unix.NLMSG_HDRLEN, unix.NLMSG_HDRLEN+len(body))
	binary.NativeEndian.PutUint32(msg[0:], uint32(unix.NLMSG_HDRLEN+len(body)))
	binary.NativeEndian.PutUint16(msg[4:], typ)
	binary.NativeEndian.PutUint16(msg[6:], flags|unix.NLM_F_REQUEST)
	binary.NativeEndian.PutUint32(msg[8:], r.seq)
	if _, err := unix.Write(r.fd, append(msg, body...)); err != nil {
		return fmt.Errorf("ask netlink: %w", err)
	}
	a := answer{seq: r.seq, each: each}
	for !a.done {
		n, _, truncated, err := receive(r.fd, r.buf, nil)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return fmt.Errorf("read netlink's answer: %w", err)
		}
		if n == 0 {
			return fmt.Errorf("read netlink's answer: %w", io.ErrUnexpectedEOF)
		}
		if truncated {
			r.cut = a.truncate(r.buf[:n])
			continue
		}
		EachMessage(r.buf[:n], a.take)
		if r.cut = errors.Is(a.err, ErrCutShort); r.cut {
			break
		}
	}
	return a.outcome()
}

// receive reads one datagram, and reports whether it was longer than buf: what did not fit is lost.
func receive(fd int, buf, oob []byte) (n, oobn int, truncated bool, err error) {
	n, oobn, flags, _, err := unix.Recvmsg(fd, buf, oob, 0)
	return n, oobn, flags&unix.MSG_TRUNC != 0, err
}

// An answer gathers the messages that answer one question.
type answer struct {
	seq         uint32
	each        func([]byte) error
	err         error
	interrupted bool
	done        bool
}

func (a *answer) take(h Header, body []byte) {
	if h.seq != a.seq {
		return // of a question whose answer came too late
	}
	if h.flags&unix.NLM_F_DUMP_INTR != 0 {
		a.interrupted = true
	}
	switch h.Type {
	case unix.NLMSG_ERROR, unix.NLMSG_DONE:
		a.done = true
		if len(body) < 4 {
			a.err = errors.Join(a.err, fmt.Errorf("netlink ended its answer with %d bytes: %w", len(body), unix.EBADMSG))
		} else if code := int32(binary.NativeEndian.Uint32(body)); code < 0 {
			a.err = unix.Errno(-code)
		}
		return
	}
	a.done = h.flags&unix.NLM_F_MULTI == 0
	if a.err == nil && a.each != nil {
		a.err = a.each(body)
	}
}

// truncate ends the answer at a datagram that was truncated, if it is part of it: the mark of
// the end may be in what was lost. more reports that the kernel may go on with the answer.
func (a *answer) truncate(b []byte) (more bool) {
	if len(b) < unix.NLMSG_HDRLEN {
		return false
	}
	h := header(b)
	if h.seq != a.seq {
		return false
	}
	a.done = true
	if a.err == nil {
		a.err = ErrTruncated
	}
	return h.flags&unix.NLM_F_MULTI != 0
}

// outcome is what the finished answer comes to.
func (a *answer) outcome() error {
	if a.err == nil && a.interrupted {
		return ErrInterrupted
	}
	return a.err
}

// A Header is what matters of a netlink message's header.
type Header struct {
	Type, flags uint16
	seq         uint32
}

// header reads the header that a message begins with.
func header(b []byte) Header {
	return Header{
		Type:  binary.NativeEndian.Uint16(b[4:]),
		flags: binary.NativeEndian.Uint16(b[6:]),
		seq:   binary.NativeEndian.Uint32(b[8:]),
	}
}

// EachMessage walks the messages of one datagram.
func EachMessage(b []byte, take func(Header, []byte)) { eachMessage(b, false, take) }

// eachMessage walks the messages of a datagram; of one that was truncated, the last is what is left of it.
func eachMessage(b []byte, truncated bool, take func(Header, []byte)) {
	for len(b) >= unix.NLMSG_HDRLEN {
		n := int(binary.NativeEndian.Uint32(b))
		if truncated {
			n = min(n, len(b))
		}
		if n < unix.NLMSG_HDRLEN || n > len(b) {
			return
		}
		take(header(b), b[unix.NLMSG_HDRLEN:n])
		b = b[min(len(b), (n+unix.NLMSG_ALIGNTO-1)&^(unix.NLMSG_ALIGNTO-1)):]
	}
}

// withAttributes appends attributes to a message's fixed part.
func withAttributes(fixed []byte, fill func(*netlink.AttributeEncoder)) ([]byte, error) {
	ae := netlink.NewAttributeEncoder()
	fill(ae)
	b, err := ae.Encode()
	if err != nil {
		return nil, fmt.Errorf("encode netlink attributes: %w", err)
	}
	return append(fixed, b...), nil
}

// attributes decodes what follows a message's fixed part.
func attributes(body []byte, fixed int, take func(*netlink.AttributeDecoder)) error {
	if len(body) < fixed {
		return fmt.Errorf("decode netlink message: %d bytes are too few", len(body))
	}
	ad, err := netlink.NewAttributeDecoder(body[fixed:])
	if err != nil {
		return fmt.Errorf("decode netlink message: %w", err)
	}
	for ad.Next() {
		take(ad)
	}
	if err := ad.Err(); err != nil {
		return fmt.Errorf("decode netlink message: %w", err)
	}
	return nil
}

// ListTries is how often a list is made before it is given up.
const ListTries = 10

// Steady repeats a listing that was interrupted, a bounded number of times.
// An interrupted list is never taken for a short one.
func Steady(list func() error) error {
	var err error
	for range ListTries {
		if err = list(); !errors.Is(err, ErrInterrupted) {
			return err
		}
	}
	return err
}
