package enforce

import (
	"cmp"
	"slices"
	"time"
)

// A Refusal is how many packets of a port were refused, for one reason: dropped, or with
// [Observe] only counted.
type Refusal struct {
	Port    int
	Reason  Reason
	Packets uint64
	Bytes   uint64
}

// A Recent is a counter of a port that rose within the time that was asked for. Its numbers are of all the time
// since the port has its present leases.
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
	for key, c := range k.refused.counts {
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

// Refusals reads the kernel's counters, in order of ports and reasons. Of a port it is what was
// refused since it has its present leases and this process began; what is older, and of ports that
// are no more, is together at port 0. What was counted
// between the last reading and the end of a table that another program deleted is lost.
func (k *Keeper) Refusals() ([]Refusal, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.refused.read(); err != nil {
		return nil, err
	}
	err := k.refused.forget(func(port int) bool { _, is := k.ports[port]; return !is && len(k.users[port]) == 0 })
	if err != nil {
		return nil, err
	}
	var out []Refusal
	for key, c := range k.refused.counts {
		if packets, bytes := c.beyond(); packets > 0 {
			out = append(out, Refusal{key.port, key.reason, packets, bytes})
		}
	}
	slices.SortFunc(out, compareRefusals)
	return out, nil
}
