package netdb

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/ipamd/ipamd/ipam"
)

type nameKey struct {
	name   string
	family int
}

func nameKeyOf(n *ipam.PoolName) nameKey { return nameKey{n.Name, n.Family} }

func poolKey(s *ipam.PoolSpec) nameKey { return nameKey{s.Name, s.Family()} }

// name returns what is remembered of a pool's name.
func (t *tx) name(s *ipam.PoolSpec) ipam.PoolName {
	n := look(poolKey(s), t.staged.names, t.idx.names)
	n.Name, n.Family = s.Name, s.Family()
	return n
}

// names has all that is remembered of names as the batch leaves it.
func (t *tx) names() map[nameKey]ipam.PoolName {
	all := maps.Clone(t.idx.names)
	maps.Copy(all, t.staged.names)
	return all
}

// unnamed begins what is remembered of a spec that the configuration has given up.
const unnamed = "was "

// Configure applies what the configuration says of pools, in one commit: each spec that it
// says now and did not say the last time. One that it still says is old news, whatever
// became of its pool since: a [Book.SetPool] or a [Book.RemovePool] is not undone by a
// file that has not changed. Each is set as by [Book.EnsurePool].
//
// A pool that has an address in use stays on its bridge, which is the only one that shows
// it, unless that is one of those that are gone: then its ports are on none, or the bridge
// was renamed.
//
// It returns what changed. Where one spec is refused none is applied, and the error joins
// those of all that are.
func (b *Book) Configure(ctx context.Context, who ipam.Who, specs []ipam.PoolSpec, gone ...string) ([]*ipam.PoolOutcome, error) {
	for _, s := range specs {
		if err := s.Check(); err != nil {
			return nil, err
		}
	}
	return change(ctx, b.writer, func(t *tx) (out []*ipam.PoolOutcome, err error) {
		// A pool may be given what another one leaves.
		for left := slices.Clone(specs); len(left) > 0; {
			var refused []ipam.PoolSpec
			var why []error
			for _, s := range left {
				o, err := t.configure(who, s, gone)
				switch {
				case err != nil:
					refused, why = append(refused, s), append(why, err)
				case o != nil && o.Changed:
					out = append(out, o)
				}
			}
			if len(refused) == len(left) {
				return nil, errors.Join(why...)
			}
			left = refused
		}
		for key, n := range t.names() {
			named := slices.ContainsFunc(specs, func(s ipam.PoolSpec) bool { return poolKey(&s) == key })
			if !named && n.Configured != "" && !strings.HasPrefix(n.Configured, unnamed) {
				n.Configured = unnamed + n.Configured
				t.stageName(who, &n)
			}
		}
		return out, nil
	})
}

// configure applies a spec that is new, and returns nil where it is not.
func (t *tx) configure(who ipam.Who, s ipam.PoolSpec, gone []string) (*ipam.PoolOutcome, error) {
	_, hash := encodeSpec(&s)
	n := t.name(&s)
	if n.Configured == hash {
		return nil, nil
	}
	n.Configured = hash
	out, err := t.setPool(who, PoolChange{Spec: s, ensure: true, gone: gone, name: &n})
	if err == nil && !out.Changed {
		t.stageName(who, &n)
	}
	return out, err
}

func (t *tx) stageName(who ipam.Who, n *ipam.PoolName) {
	who.Reason = ipam.PoolConfigured
	c := t.change(ipam.OfPool, who)
	c.Pool = n.Name
	t.staged.stage(step{name: n, change: c})
}

// Unconfigured returns the pools that the configuration has given up: they stay, and are
// an operator's to put back or to remove.
func (m *memory) Unconfigured() (out []*ipam.Pool) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	for _, pi := range m.idx.order {
		if strings.HasPrefix(m.idx.names[poolKey(&pi.pool.PoolSpec)].Configured, unnamed) {
			out = append(out, pi.pool)
		}
	}
	return out
}
