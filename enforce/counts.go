package enforce

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"slices"
	"time"

	"github.com/ipamd/ipamd/nft"
)

// A Refusal is how many packets of a port were refused, for one reason: dropped, or with
// [Observe] only counted.
type Refusal struct {
	Port    int
	Reason  Reason
	Packets uint64
	Bytes   uint64
}

// counts outlive the kernel's counters, which go with the table.
type counts map[countKey]*count

type countKey struct {
	port   int
	reason Reason
}

type count struct {
	gone, now nft.Counter
	past      nft.Counter // of both, what is not of the port's present leases
	since     time.Time   // when it was seen to count first, beyond that; zero: it was not
	last      time.Time   // and last
}

// beyond is what was counted since the port has its present leases, as far as this process saw.
func (c *count) beyond() (packets, bytes uint64) {
	return c.gone.Packets + c.now.Packets - c.past.Packets, c.gone.Bytes + c.now.Bytes - c.past.Bytes
}

// A Recent is what was refused of a port in the last minutes.
type Recent struct {
	Refusal
	Name   string    // of the port
	Grants []Grant   // of the leases there; none without a lease
	Since  time.Time // when the first was seen
}

// Recently is what the last reading of [Keeper.Refusals] found to be counting still, within
// that time. It reads memory.
func (k *Keeper) Recently(within time.Duration) (out []Recent) {
	k.mu.Lock()
	defer k.mu.Unlock()
	at := map[int][]Grant{}
	for _, g := range k.grants {
		for _, one := range g {
			at[one.Port] = append(at[one.Port], one)
		}
	}
	for key, c := range k.counts {
		p, is := k.ports[key.port]
		if !is || time.Since(c.last) > within {
			continue
		}
		sortGrants(at[key.port])
		packets, bytes := c.beyond()
		out = append(out, Recent{Refusal: Refusal{key.port, key.reason, packets, bytes}, Name: p.Name, Grants: at[key.port], Since: c.since})
	}
	slices.SortFunc(out, func(a, b Recent) int { return compareRefusals(a.Refusal, b.Refusal) })
	return out
}

func compareRefusals(a, b Refusal) int {
	return cmp.Or(cmp.Compare(a.Port, b.Port), cmp.Compare(slices.Index(Reasons(), a.Reason), slices.Index(Reasons(), b.Reason)))
}

// keepCounts takes in that the kernel's counters may begin anew: before a table is made.
func (k *Keeper) keepCounts(have *nft.Table) {
	for key, c := range k.counts {
		if have == nil || have.Set(key.reason.set()) == nil {
			c.gone.Packets += c.now.Packets
			c.gone.Bytes += c.now.Bytes
			c.now = nft.Counter{}
		}
	}
}

// toNone adds to port 0 what was counted up to now: it is of no lease that the port has.
func (k *Keeper) toNone(key countKey, c *count) {
	packets, bytes := c.beyond()
	to := countKey{0, key.reason}
	if k.counts[to] == nil {
		k.counts[to] = &count{}
	}
	k.counts[to].gone.Packets += packets
	k.counts[to].gone.Bytes += bytes
	c.past.Packets += packets
	c.past.Bytes += bytes
	c.since, c.last = time.Time{}, time.Time{}
}

// forgetPorts adds what ports counted that are no more to port 0, and ends their counters.
func (k *Keeper) forgetPorts() error {
	ends := map[Reason]*nft.Edit{}
	for key, c := range k.counts {
		if _, is := k.ports[key.port]; is || key.port == 0 || k.users[key.port] > 0 {
			continue
		}
		if c.now.Key != "" {
			if ends[key.reason] == nil {
				ends[key.reason] = &nft.Edit{Set: sets[key.reason.set()]}
			}
			ends[key.reason].Del = append(ends[key.reason].Del, nft.Element{Key: c.now.Key})
		}
		k.toNone(key, c)
		delete(k.counts, key)
	}
	for _, e := range ends {
		if err := k.conn.Edit(context.Background(), table, *e); err != nil && !errors.Is(err, nft.ErrChanged) {
			return err
		}
	}
	return nil
}

// Refusals reads the kernel's counters, in order of ports and reasons. Of a port it is what was
// refused since it has its present leases and this process began; what is older, and of ports that
// are no more, is together at port 0. What was counted
// between the last reading and the end of a table that another program deleted is lost.
func (k *Keeper) Refusals() ([]Refusal, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.readCounts(); err != nil {
		return nil, err
	}
	if err := k.forgetPorts(); err != nil {
		return nil, err
	}
	var out []Refusal
	for key, c := range k.counts {
		if packets, bytes := c.beyond(); packets > 0 {
			out = append(out, Refusal{key.port, key.reason, packets, bytes})
		}
	}
	slices.SortFunc(out, compareRefusals)
	return out, nil
}

// readCounts takes in the kernel's counters. The first reading is where counting begins: it is
// not known whose packets those were.
func (k *Keeper) readCounts() error {
	for _, r := range Reasons() {
		list, err := k.conn.Counters(table, sets[r.set()])
		if err != nil {
			return err
		}
		for _, c := range list {
			k.take(r, c)
		}
	}
	if !k.counted {
		for key := range k.counts {
			k.came[key.port] = true
		}
	}
	k.counted = true
	k.begin()
	return nil
}

// readCame takes in those of the ports that came to another lease, whose counting begins there.
func (k *Keeper) readCame() error {
	if !k.counted || len(k.came) > mostOneByOne {
		return k.readCounts()
	}
	for port := range k.came {
		for _, r := range Reasons() {
			c, err := k.conn.Counter(table, sets[r.set()], nft.Key(port))
			if err != nil {
				return err
			}
			if c.Packets > 0 {
				k.take(r, c)
			}
		}
	}
	k.begin()
	return nil
}

// settleCounts does it where there is something to read, behind the rules: what is refused from then on is the
// lease's. Run does it a moment after a bind, which does not wait for it. What fails here the next reading does.
func (k *Keeper) settleCounts() {
	if !k.counted || len(k.came) > 0 {
		_ = k.readCame()
	}
}

// mostOneByOne is the most ports of which it is faster to read each.
const mostOneByOne = 64

// begin has what was counted up to now be of no lease, at the ports that came to another one.
func (k *Keeper) begin() {
	for port := range k.came {
		for _, r := range Reasons() {
			if c := k.counts[countKey{port, r}]; c != nil && port != 0 {
				k.toNone(countKey{port, r}, c)
			}
		}
	}
	clear(k.came)
}

func (k *Keeper) take(r Reason, c nft.Counter) {
	key := countKey{int(binary.NativeEndian.Uint32([]byte(c.Key))), r}
	if k.counts[key] == nil {
		k.counts[key] = &count{}
	}
	of := k.counts[key]
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
