package enforce

import (
	"context"
	"encoding/binary"
	"errors"
	"time"

	"github.com/ipamd/ipamd/nft"
)

// refusals add up what the kernel counted of each port and reason. They are used under the
// keeper's lock.
type refusals struct {
	conn   *nft.Conn
	counts counts
	begun  bool         // the kernel's counters were read once
	came   map[int]bool // the same map as desired.came
}

// counts outlive the kernel's counters, which go with the table.
type counts map[countKey]*count

type countKey struct {
	port   int
	reason Reason
}

type count struct {
	gone, now nft.Counter // of the kernel's counters that have ended, and of the present one
	past      nft.Counter // of both, what is not of the port's present leases
	since     time.Time   // when it was seen to count first, beyond that; zero: it was not
	last      time.Time   // and last
}

// beyond is what was counted since the port has its present leases, as far as this process saw.
func (c *count) beyond() (packets, bytes uint64) {
	return c.gone.Packets + c.now.Packets - c.past.Packets, c.gone.Bytes + c.now.Bytes - c.past.Bytes
}

// keep takes in that the kernel's counters may begin anew: before a table is made.
func (n *refusals) keep(have *nft.Table) {
	for key, c := range n.counts {
		if have == nil || have.Set(key.reason.set()) == nil {
			c.gone.Packets += c.now.Packets
			c.gone.Bytes += c.now.Bytes
			c.now = nft.Counter{}
		}
	}
}

// toNone adds to port 0 what was counted up to now: it is of no lease that the port has.
func (n *refusals) toNone(key countKey, c *count) {
	packets, bytes := c.beyond()
	to := countKey{0, key.reason}
	if n.counts[to] == nil {
		n.counts[to] = &count{}
	}
	n.counts[to].gone.Packets += packets
	n.counts[to].gone.Bytes += bytes
	c.past.Packets += packets
	c.past.Bytes += bytes
	c.since, c.last = time.Time{}, time.Time{}
}

// forget adds what ports counted that are gone to port 0, and ends their counters.
func (n *refusals) forget(gone func(port int) bool) (err error) {
	ends := map[Reason][]countKey{}
	for key := range n.counts {
		if key.port != 0 && gone(key.port) {
			ends[key.reason] = append(ends[key.reason], key)
		}
	}
	for r, keys := range ends {
		err = errors.Join(err, n.end(r, keys))
	}
	return err
}

// end deletes counters in the kernel, and then takes them out of memory: while one is in the kernel the next
// reading has what it counted.
func (n *refusals) end(r Reason, keys []countKey) error {
	e := nft.Edit{Set: sets[r.set()]}
	for _, key := range keys {
		if now := n.counts[key].now.Key; now != "" {
			e.Del = append(e.Del, nft.Element{Key: now})
		}
	}
	if len(e.Del) > 0 {
		// Behind a call that is over the counters would not match what counts has.
		switch err := n.conn.Edit(context.Background(), table, e); {
		case errors.Is(err, nft.ErrChanged) && len(keys) > 1: // one is not there, and none was deleted
			half := len(keys) / 2
			return errors.Join(n.end(r, keys[:half]), n.end(r, keys[half:]))
		case errors.Is(err, nft.ErrChanged): // another program deleted it
		case err != nil:
			return err
		}
	}
	for _, key := range keys {
		n.toNone(key, n.counts[key])
		delete(n.counts, key)
	}
	return nil
}

// read takes in the kernel's counters. The first reading is where counting begins: it is
// not known whose packets those were.
func (n *refusals) read() error {
	for _, r := range Reasons() {
		list, err := n.conn.Counters(table, sets[r.set()])
		if err != nil {
			return err
		}
		for _, c := range list {
			n.take(r, c)
		}
	}
	if !n.begun {
		for key := range n.counts {
			n.came[key.port] = true
		}
	}
	n.begun = true
	n.begin()
	return nil
}

// readCame takes in those of the ports that came to another lease, whose counting begins there.
func (n *refusals) readCame() error {
	if !n.begun || len(n.came) > mostOneByOne {
		return n.read()
	}
	for port := range n.came {
		for _, r := range Reasons() {
			c, err := n.conn.Counter(table, sets[r.set()], nft.Key(port))
			if err != nil {
				return err
			}
			if c.Packets > 0 {
				n.take(r, c)
			}
		}
	}
	n.begin()
	return nil
}

// readPending reads the counters of ports that came to another lease, if there are any, after the rules are
// written: what is refused from then on is that lease's. Run does it a moment after a bind, which does not wait
// for it. What fails here the next reading does.
func (n *refusals) readPending() {
	if !n.begun || len(n.came) > 0 {
		_ = n.readCame()
	}
}

// mostOneByOne is the most ports of which it is faster to read each.
const mostOneByOne = 64

// begin has what was counted up to now be of no lease, at the ports that came to another one.
func (n *refusals) begin() {
	for port := range n.came {
		for _, r := range Reasons() {
			if c := n.counts[countKey{port, r}]; c != nil && port != 0 {
				n.toNone(countKey{port, r}, c)
			}
		}
	}
	clear(n.came)
}

func (n *refusals) take(r Reason, c nft.Counter) {
	key := countKey{int(binary.NativeEndian.Uint32([]byte(c.Key))), r}
	if n.counts[key] == nil {
		n.counts[key] = &count{}
	}
	of := n.counts[key]
	if c.Packets != of.now.Packets {
		of.last = time.Now()
		if of.since.IsZero() {
			of.since = of.last
		}
	}
	if c.Packets < of.now.Packets {
		of.gone.Packets += of.now.Packets
		of.gone.Bytes += of.now.Bytes
	}
	of.now = c
}
