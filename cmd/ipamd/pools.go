package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

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

// desired is what the bridge has to be for the pools of the book, and beside another
// runner's book for those of the configuration, as that one says nothing of this bridge:
// sandboxes may live with a pool that is in neither, so no gateway is taken from them.
func (p *program) desired() (bridge.Desired, error) {
	want := bridge.Desired{MTU: p.cfg.Bridge.MTU}
	var specs []netdb.PoolSpec
	for _, pool := range p.book.Pools() {
		specs = append(specs, pool.PoolSpec)
	}
	if p.book.Identity() != nil {
		var err error
		if specs, err = p.configured.Load().PoolSpecs(); err != nil {
			return want, err
		}
		want.Keep = true
	}
	for _, s := range specs {
		if s.Gateway.IsValid() && s.Bridge == p.cfg.Bridge.Name {
			want.Gateways = append(want.Gateways, netip.PrefixFrom(s.Gateway, s.Prefix.Bits()))
		}
	}
	return want, nil
}

// followPools has the bridge follow the pools, however they are changed, until ctx ends. What
// it could not do the bridge's own readings see to.
func (p *program) followPools(ctx context.Context) error {
	for is := p.opened; ; {
		changed := p.book.PoolsChanged()
		want, err := p.desired()
		if err == nil && !slices.Equal(want.Gateways, is.Gateways) {
			is, err = want, p.bridge.Set(ctx, want)
		}
		if err != nil && ctx.Err() == nil {
			p.log.Warn("the bridge does not follow the pools yet", "bridge", p.cfg.Bridge.Name, "err", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		}
	}
}
