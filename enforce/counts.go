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
	since     time.Time // when it was seen to count first
	last      time.Time // and last
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
		out = append(out, Recent{Refusal: Refusal{key.port, key.reason, c.gone.Packets + c.now.Packets, c.gone.Bytes + c.now.Bytes},
			Name: p.Name, Grants: at[key.port], Since: c.since})
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
				k.counts[key] = &count{since: time.Now()}
			}
			of := k.counts[key]
			if c.Packets != of.now.Packets {
				of.last = time.Now()
			}
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
	slices.SortFunc(out, compareRefusals)
	return out, nil
}
