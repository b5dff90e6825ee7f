package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ipamd/ipamd/bridge"
	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/config"
	"github.com/ipamd/ipamd/gateways"
	"github.com/ipamd/ipamd/netdb"
)

// configurePools has the book take over what is new in the configuration's pools, all of
// it or nothing, and reports what changed.
func (p *program) configurePools(ctx context.Context, cfg config.Config) error {
	specs, err := cfg.PoolSpecs()
	if err != nil {
		return err
	}
	return p.takeOverPools(ctx, specs)
}

func (p *program) takeOverPools(ctx context.Context, specs []netdb.PoolSpec) error {
	gone, err := p.bridgesGone()
	if err != nil {
		return err
	}
	changed, err := p.book.Configure(ctx, netdb.Who{Actor: netdb.ByOperator, Peer: "configuration"}, specs, gone...)
	var stays *netdb.PoolNotEmptyError
	if errors.As(err, &stays) && stays.Bridge != "" {
		return fmt.Errorf("configuration: %w; set its bridge back to %s until these have ended, or make a pool of another name on the other bridge", err, stays.Bridge)
	} else if errors.Is(err, netdb.ErrPoolNotEmpty) {
		return fmt.Errorf("configuration: %w; set its prefix back, and give a prefix that does not overlap it a pool of another name", err)
	} else if err != nil {
		return fmt.Errorf("configuration: %w", err)
	}
	for _, o := range changed {
		p.log.Info("the configuration has changed a pool", "pool", o.Pool.Name, "prefix", o.Pool.Prefix, "generation", o.Pool.Generation, "left_outside", outside(o))
		if o.Was != nil && o.Was.State == netdb.PoolDraining && o.Pool.State != netdb.PoolDraining {
			p.log.Warn("a pool drains no more: the configuration has changed a line of it", "pool", o.Pool.Name, "next", "ipamctl pool drain "+o.Pool.Name)
		}
		if o.Was != nil && o.Was.Bridge != o.Pool.Bridge && o.Stay > 0 {
			p.log.Warn("a pool with leases is on another bridge, because its own is gone", "pool", o.Pool.Name, "was", o.Was.Bridge, "bridge", o.Pool.Bridge, "leases", o.Stay)
		}
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

// bridgesGone are the bridges of the book's pools that the kernel does not have.
func (p *program) bridgesGone() ([]string, error) {
	var names []string
	for _, pool := range p.book.Pools() {
		names = append(names, pool.Bridge)
	}
	return bridge.Missing(p.netns, names...)
}

// startPools is ensurePools at a start. A pool that leases keep on its bridge stays there,
// with all else that the configuration says of it, and that is a finding: the other pools
// and the sandboxes that live cannot wait for it. Each start tries again.
func (p *program) startPools(ctx context.Context) error {
	p.poolsBefore = p.book.Pools()
	specs, err := p.configured.Load().PoolSpecs()
	if err != nil {
		return err
	}
	for range len(specs) + 1 {
		var stays *netdb.PoolNotEmptyError
		if err = p.takeOverPools(ctx, specs); !errors.As(err, &stays) || stays.Bridge == "" {
			return err
		}
		i := slices.IndexFunc(specs, func(s netdb.PoolSpec) bool {
			return s.Name == stays.Pool.Name && s.Prefix.Addr().Is4() == stays.Pool.Prefix.Addr().Is4()
		})
		if i < 0 {
			return err
		}
		specs[i].Bridge = stays.Bridge
		p.log.Error("a pool stays on its bridge", "pool", stays.Pool.Name, "bridge", stays.Bridge, "err", err)
		p.refuseReload(err.Error())
	}
	return err
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

// openBridge opens the bridges of the pools.
func (p *program) openBridge(ctx context.Context) (err error) {
	var expected []census.Witness // beside those of the bridges
	if p.cfg.Runtime.Kind != "none" {
		expected = append(expected, census.Runtime)
	}
	p.board = census.NewBoard(expected...)
	p.follower = gateways.New(gateways.Config{Book: p.book, Bridge: p.cfg.Bridge.Name, MTU: p.cfg.Bridge.MTU, Every: time.Duration(p.cfg.Bridge.Refresh), Log: p.log,
		Manage: p.cfg.Bridge.Manage, Missing: func(names ...string) ([]string, error) { return bridge.Missing(p.netns, names...) },
		Configured: func() ([]netdb.PoolSpec, error) { return p.configured.Load().PoolSpecs() }})
	p.bridge, err = p.follower.Open(ctx, p.poolsBefore, func(ctx context.Context, wants ...bridge.Want) (*bridge.Group, error) {
		return bridge.OpenGroup(ctx, bridge.Config{
			Name: p.cfg.Bridge.Name, Netns: p.netns, Manage: p.cfg.Bridge.Manage,
			Every: time.Duration(p.cfg.Bridge.Refresh), NetnsFolders: p.cfg.Bridge.Netns, Log: p.log,
		}, p.board, wants...)
	})
	if err != nil {
		return err
	}
	p.onClose(p.bridge.Close)
	return nil
}
