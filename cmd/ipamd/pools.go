package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/ipamd/ipamd/bridge"
	"github.com/ipamd/ipamd/config"
	"github.com/ipamd/ipamd/netdb"
)

// configurePools has the book take over what is new in the configuration's pools, all of
// it or nothing, and reports what changed and what the configuration has given up.
func (p *program) configurePools(ctx context.Context, cfg config.Config) error {
	specs, err := cfg.PoolSpecs()
	if err != nil {
		return err
	}
	changed, err := p.book.Configure(ctx, netdb.Who{Actor: netdb.ByOperator, Peer: "configuration"}, specs)
	if errors.Is(err, netdb.ErrPoolNotEmpty) {
		return fmt.Errorf("configuration: %w; set its prefix back, and give a prefix that does not overlap it a pool of another name", err)
	} else if err != nil {
		return fmt.Errorf("configuration: %w", err)
	}
	for _, o := range changed {
		p.log.Info("the configuration has changed a pool", "pool", o.Pool.Name, "prefix", o.Pool.Prefix, "generation", o.Pool.Generation, "left_outside", outside(o))
	}
	book := p.book.Pools()
	for _, s := range specs {
		i := slices.IndexFunc(book, func(pool *netdb.Pool) bool {
			return pool.Name == s.Name && pool.Prefix.Addr().Is4() == s.Prefix.Addr().Is4()
		})
		if i < 0 || book[i].Prefix != s.Prefix {
			p.log.Warn("a pool was changed since the configuration gave it, and stays as it is", "pool", s.Name, "configured", s.Prefix, "next", "ipamctl pools")
		}
	}
	return nil
}

// ensurePools is configurePools of the configuration as it was last taken over.
func (p *program) ensurePools(ctx context.Context) error {
	return p.configurePools(ctx, *p.configured.Load())
}

// reportPools reports pools that the configuration has given up.
func (p *program) reportPools(unconfigured []*netdb.Pool) {
	for _, pool := range unconfigured {
		p.log.Warn("the configuration does not name a pool of the book; it is kept as it was",
			"pool", pool.Name, "prefix", pool.Prefix, "next", config.RepairUnnamed)
	}
}

// outside counts the leases that a change left outside their pool.
func outside(o *netdb.PoolOutcome) (n int) {
	for _, e := range o.Effects {
		if e.Effect == netdb.LeaseOutside {
			n++
		}
	}
	return n
}

// desired is what the bridge has to be for the pools of the book, after what it had to be
// before. Beside another runner's book it is for those of the configuration, as that one
// says nothing of this bridge: sandboxes may live with a pool that is in neither, so no
// gateway is taken from them.
func (p *program) desired(before []netip.Prefix) (bridge.Desired, error) {
	want := bridge.Desired{MTU: p.cfg.Bridge.MTU}
	var specs []netdb.PoolSpec
	for _, pool := range p.book.Pools() {
		specs = append(specs, pool.PoolSpec)
	}
	foreign := p.book.Identity() != nil
	if foreign {
		var err error
		if specs, err = p.configured.Load().PoolSpecs(); err != nil {
			return want, err
		}
	}
	specs = slices.DeleteFunc(specs, func(s netdb.PoolSpec) bool { return s.Bridge != p.cfg.Bridge.Name })
	var held []netip.Addr
	if len(before) > 0 { // otherwise nothing can be former
		held = p.heldAddresses()
	}
	want.Gateways, want.Former = gatewaysOf(specs, before, held)
	if foreign {
		want.Former = nil
	}
	return want, nil
}

// heldAddresses lists the addresses that a sandbox may be using.
func (p *program) heldAddresses() (held []netip.Addr) {
	leases, _ := p.book.Leases()
	for _, l := range leases {
		if l.State != netdb.Cooling {
			held = append(held, l.Addr)
		}
	}
	for _, w := range p.book.Withheld() {
		if w.State != netdb.Cooling {
			held = append(held, w.Addr)
		}
	}
	return held
}

// followPools has the bridge follow the pools, however they are changed, until ctx ends. A
// gateway goes only if a pool had it in this life of the daemon and nobody needs it any more:
// of one that an earlier daemon put there it is not known whose it was. Whether somebody does
// is looked at again with each whole reading, while there is such a gateway.
func (p *program) followPools(ctx context.Context) error {
	is := p.opened
	for {
		changed := p.book.PoolsChanged()
		before := slices.Concat(is.Gateways, is.Former)
		want, err := p.desired(before)
		if err == nil && !(slices.Equal(want.Gateways, is.Gateways) && slices.Equal(want.Former, is.Former)) {
			is, err = want, p.bridge.Set(ctx, want)
		}
		if err != nil && ctx.Err() == nil {
			p.log.Warn("the bridge does not follow the pools yet", "bridge", p.cfg.Bridge.Name, "err", err)
		}
		var again <-chan time.Time
		if own, err := p.desired(nil); err != nil || !slices.Equal(own.Gateways, want.Gateways) {
			again = time.After(time.Duration(p.cfg.Bridge.Refresh))
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case <-again:
		}
	}
}
