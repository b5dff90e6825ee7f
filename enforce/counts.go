package enforce

import (
	"context"
	"encoding/binary"
	"errors"
	"slices"

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

type count struct{ gone, now nft.Counter }

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
		to := countKey{0, key.reason}
		if k.counts[to] == nil {
			k.counts[to] = &count{}
		}
		k.counts[to].gone.Packets += c.gone.Packets + c.now.Packets
		k.counts[to].gone.Bytes += c.gone.Bytes + c.now.Bytes
		delete(k.counts, key)
	}
	for _, e := range ends {
		if err := k.conn.Edit(context.Background(), table, *e); err != nil && !errors.Is(err, nft.ErrChanged) {
			return err
		}
	}
	return nil
}

// Refusals reads the kernel's counters, in order of ports and reasons; those of ports that
// are no more are together at port 0. What was counted
// between the last reading and the end of a table that another program deleted is lost.
func (k *Keeper) Refusals() ([]Refusal, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, r := range Reasons() {
		list, err := k.conn.Counters(table, sets[r.set()])
		if err != nil {
			return nil, err
		}
		for _, c := range list {
			key := countKey{int(binary.NativeEndian.Uint32([]byte(c.Key))), r}
			if k.counts[key] == nil {
				k.counts[key] = &count{}
			}
			of := k.counts[key]
			if c.Packets < of.now.Packets {
				of.gone.Packets += of.now.Packets
				of.gone.Bytes += of.now.Bytes
			}
			of.now = c
		}
	}
	if err := k.forgetPorts(); err != nil {
		return nil, err
	}
	var out []Refusal
	for key, c := range k.counts {
		if n := c.gone.Packets + c.now.Packets; n > 0 {
			out = append(out, Refusal{key.port, key.reason, n, c.gone.Bytes + c.now.Bytes})
		}
	}
	slices.SortFunc(out, func(a, b Refusal) int {
		if a.Port != b.Port {
			return a.Port - b.Port
		}
		return slices.Index(Reasons(), a.Reason) - slices.Index(Reasons(), b.Reason)
	})
	return out, nil
}
