package nft

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/google/nftables"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// buffers of the socket, in bytes. The kernel takes a transaction as one message, and
// answers each of its parts.
const (
	sendBuffer    = 64 << 20
	receiveBuffer = 8 << 20
)

// A Conn changes tables of one network namespace over one socket: a socket for each
// transaction makes a deletion take a hundred times as long. It is safe for concurrent use.
type Conn struct {
	mu     sync.Mutex
	nl     *nftables.Conn
	sock   *netlink.Conn
	portID uint32 // the socket's netlink address, which the kernel's news of our changes carry
}

// Open opens a socket in the network namespace of the calling thread. It is
// ErrUnsupported where the kernel has no nftables.
func Open() (*Conn, error) {
	c := &Conn{}
	if err := c.open(); err != nil {
		return nil, err
	}
	if _, err := c.generation(); err != nil {
		_ = c.nl.CloseLasting()
		return nil, fmt.Errorf("%w (nf_tables): %w", ErrUnsupported, err)
	}
	return c, nil
}

func (c *Conn) open() error {
	var sock *netlink.Conn
	nl, err := nftables.New(nftables.AsLasting(), nftables.WithSockOptions(func(s *netlink.Conn) error {
		sock = s
		return errors.Join(s.SetWriteBuffer(sendBuffer), s.SetReadBuffer(receiveBuffer))
	}))
	if err != nil {
		return fmt.Errorf("open netlink socket to nftables: %w", err)
	}
	id, err := portIDOf(sock)
	if err != nil {
		_ = nl.CloseLasting()
		return err
	}
	c.nl, c.sock, c.portID = nl, sock, id
	return nil
}

func portIDOf(s *netlink.Conn) (id uint32, err error) {
	raw, err := s.SyscallConn()
	if err != nil {
		return 0, err
	}
	e := raw.Control(func(fd uintptr) {
		var sa unix.Sockaddr
		if sa, err = unix.Getsockname(int(fd)); err == nil {
			id = sa.(*unix.SockaddrNetlink).Pid
		}
	})
	return id, errors.Join(e, err)
}

// Close ends the socket. Tables stay as they are.
func (c *Conn) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.nl.CloseLasting()
}

// Ours reports whether a change was made over this Conn.
func (c *Conn) Ours(portID uint32) bool { return c.portID == portID }

// Apply makes the kernel's table, which is have (nil: there is none), as it is wanted, in
// one transaction. Where both are the same, nothing is done. After an error nothing was
// changed; ErrChanged means that have was not what is there.
func (c *Conn) Apply(ctx context.Context, have, want *Table) error {
	if err := want.check(); err != nil {
		return err
	}
	d := difference(have, want)
	if d.empty() {
		return nil
	}
	return c.transaction(ctx, want, func(b *batch) error { return b.write(d, have != nil) })
}

// Edit changes elements of a table's sets, in one transaction.
func (c *Conn) Edit(ctx context.Context, t *Table, edits ...Edit) error {
	return c.transaction(ctx, t, func(b *batch) error {
		for _, e := range edits {
			if err := b.edit(e); err != nil {
				return err
			}
		}
		return nil
	})
}

// Remove takes a table away. That there is none is no error.
func (c *Conn) Remove(ctx context.Context, f Family, name string) error {
	t := &Table{Family: f, Name: name}
	err := c.transaction(ctx, t, func(b *batch) error {
		b.c.DelTable(b.table)
		return nil
	})
	if errors.Is(err, ErrChanged) {
		return nil
	}
	return err
}

// RemoveTable takes a table away in the namespace of the calling thread, and reports whether
// there was one. A kernel without nftables has none.
func RemoveTable(ctx context.Context, f Family, name string) (removed bool, err error) {
	c, err := Open()
	if errors.Is(err, ErrUnsupported) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	there, err := c.Read(ctx, &Table{Family: f, Name: name})
	if err != nil || there == nil {
		return false, err
	}
	return true, c.Remove(ctx, f, name)
}

func (c *Conn) transaction(ctx context.Context, t *Table, fill func(*batch) error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	b := &batch{c: c.nl, table: &nftables.Table{Family: t.Family, Name: t.Name}}
	err := fill(b)
	if err == nil {
		err = c.nl.Flush()
	}
	if err == nil {
		return nil
	}
	if e := c.drain(); e != nil {
		err = errors.Join(err, e)
	}
	return fmt.Errorf("change table %s %s: %w", familyName(t.Family), t.Name, classify(err))
}

// drain reads what is left of the answers to a transaction that was refused: none may be
// taken for the answer to the next. The kernel wrote all of them before it took the
// transaction's last byte.
func (c *Conn) drain() error {
	raw, err := c.sock.SyscallConn()
	if err != nil {
		return err
	}
	return raw.Control(func(fd uintptr) {
		b := make([]byte, 64<<10)
		for {
			_, _, err := unix.Recvfrom(int(fd), b, unix.MSG_DONTWAIT)
			if err != nil && !errors.Is(err, unix.EINTR) && !errors.Is(err, unix.ENOBUFS) {
				return
			}
		}
	})
}

func classify(err error) error {
	switch { // EOPNOTSUPP first: an ENOENT may follow from it, of what was refused before in the transaction
	case errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.EAFNOSUPPORT), errors.Is(err, unix.EPROTONOSUPPORT):
		return fmt.Errorf("%w: %w", ErrUnsupported, err)
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.EEXIST), errors.Is(err, unix.EBUSY):
		return fmt.Errorf("%w: %w", ErrChanged, err)
	}
	return err
}

// check refuses what the kernel would take for something else.
func (t *Table) check() error {
	for _, s := range t.Sets {
		switch {
		case len(s.Key) == 0:
			return fmt.Errorf("set %s has no key", s.Name)
		case s.Interval && len(s.Key) < 2: // the kernel takes an element's end with its key of concatenations only
			return fmt.Errorf("set %s: ranges need a key of two types at least", s.Name)
		case !s.Dynamic && s.Timeout != 0:
			return fmt.Errorf("set %s has a timeout, and no rule adds to it", s.Name)
		case s.Dynamic && len(s.Elements) > 0:
			return fmt.Errorf("set %s is dynamic: its elements are its rules'", s.Name)
		}
		for _, e := range s.Elements {
			if s.Interval != (e.End != "") || len(e.Comment) > 127 {
				return fmt.Errorf("set %s: element %s has a wrong end or too long a comment", s.Name, Format(s.Key, e.Key))
			}
		}
	}
	for _, c := range t.Chains {
		for _, r := range c.Rules {
			if len(r.Why) > 127 {
				return fmt.Errorf("chain %s: the comment of a rule has %d bytes, and may have 127", c.Name, len(r.Why))
			}
		}
	}
	return nil
}

func familyName(f Family) string {
	switch f {
	case Bridge:
		return "bridge"
	case Netdev:
		return "netdev"
	}
	return fmt.Sprintf("family %d", f)
}
