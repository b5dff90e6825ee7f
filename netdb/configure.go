package netdb

import (
	"context"
	"errors"
	"slices"
	"strings"
)

// unnamed begins what is remembered of a spec that the configuration has given up.
const unnamed = "was "

// PoolConfigured is the reason of a change that only notes what the configuration says.
const PoolConfigured = "pool_configured"

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
func (b *Book) Configure(ctx context.Context, who Who, specs []PoolSpec, gone ...string) ([]*PoolOutcome, error) {
	for _, s := range specs {
		if err := s.Check(); err != nil {
			return nil, err
		}
	}
	return change(ctx, b.writer, func(t *tx) (out []*PoolOutcome, err error) {
		// A pool may be given what another one leaves.
		for left := slices.Clone(specs); len(left) > 0; {
			var refused []PoolSpec
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
			named := slices.ContainsFunc(specs, func(s PoolSpec) bool { return s.key() == key })
			if !named && n.configured != "" && !strings.HasPrefix(n.configured, unnamed) {
				n.configured = unnamed + n.configured
				t.stageName(who, &namedPool{key, n})
			}
		}
		return out, nil
	})
}

// configure applies a spec that is new, and returns nil where it is not.
func (t *tx) configure(who Who, s PoolSpec, gone []string) (*PoolOutcome, error) {
	_, hash := s.encode()
	n := &namedPool{s.key(), t.name(&s)}
	if n.configured == hash {
		return nil, nil
	}
	n.configured = hash
	out, err := t.setPool(who, PoolChange{Spec: s, ensure: true, gone: gone, name: n})
	if err == nil && !out.Changed {
		t.stageName(who, n)
	}
	return out, err
}

func (t *tx) stageName(who Who, n *namedPool) {
	who.Reason = PoolConfigured
	t.staged.stage(step{name: n, change: &Change{Rev: t.staged.rev + 1, At: t.now, Subject: OfPool, Pool: n.key.name, Who: who}})
}

// Unconfigured returns the pools that the configuration has given up: they stay, and are
// an operator's to put back or to remove.
func (m *memory) Unconfigured() (out []*Pool) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	for _, pi := range m.idx.order {
		if strings.HasPrefix(m.idx.names[pi.pool.key()].configured, unnamed) {
			out = append(out, pi.pool)
		}
	}
	return out
}

// PoolsChanged returns a channel that is closed at the next commit that makes, changes or
// removes a pool, or is about the book itself: whose it is. It carries no payload: look again.
func (m *memory) PoolsChanged() <-chan struct{} { return m.signal.next(poolCommit) }
