package reload

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/ipamd/ipamd/config"
	"github.com/ipamd/ipamd/ipam"
)

// Pools are those of the configuration.
func (c *Configuration) Pools() ([]ipam.PoolSpec, error) { return c.now.Load().PoolSpecs() }

// Start is [Configuration.TakeOver] at a start. A pool that leases keep on its bridge stays there,
// with all else that the configuration says of it, and that is a [Refusal]. Each start tries
// again. Another runner's book is left as it is, which is no error: its adoption says
// what is in the way.
func (c *Configuration) Start(ctx context.Context) error {
	if err := c.start(ctx); err != nil && c.cfg.Book.CheckIdentity() == nil {
		return err
	}
	c.reportUnnamed()
	return nil
}

func (c *Configuration) start(ctx context.Context) error {
	specs, err := c.Pools()
	if err != nil {
		return err
	}
	for range len(specs) + 1 {
		var stays *ipam.PoolNotEmptyError
		if err = c.takeOver(ctx, specs); !errors.As(err, &stays) || stays.Bridge == "" {
			return err
		}
		i := slices.IndexFunc(specs, func(s ipam.PoolSpec) bool { return isOf(s, stays.Pool) })
		if i < 0 {
			return err
		}
		specs[i].Bridge = stays.Bridge
		c.cfg.Log.Error("a pool stays on its bridge", "pool", stays.Pool.Name, "bridge", stays.Bridge, "err", err)
		c.refuse(err.Error(), nextReload)
	}
	return err
}

// isOf says whether a spec and a pool have one name and one family.
func isOf(s ipam.PoolSpec, p *ipam.Pool) bool {
	return s.Name == p.Name && s.Prefix.Addr().Is4() == p.Prefix.Addr().Is4()
}

// TakeOver has the book take over what is new in the pools, all of it or nothing, and reports
// what changed.
func (c *Configuration) TakeOver(ctx context.Context) error { return c.pools(ctx, *c.now.Load()) }

func (c *Configuration) pools(ctx context.Context, cfg config.Config) error {
	specs, err := cfg.PoolSpecs()
	if err != nil {
		return err
	}
	return c.takeOver(ctx, specs)
}

func (c *Configuration) takeOver(ctx context.Context, specs []ipam.PoolSpec) error {
	book, log := c.cfg.Book, c.cfg.Log
	var bridges []string
	for _, pool := range book.Pools() {
		bridges = append(bridges, pool.Bridge)
	}
	gone, err := c.cfg.Missing(bridges...)
	if err != nil {
		return err
	}
	changed, err := book.Configure(ctx, ipam.Who{Actor: ipam.ByOperator, Peer: "configuration"}, specs, gone...)
	var stays *ipam.PoolNotEmptyError
	if errors.As(err, &stays) && stays.Bridge != "" {
		return fmt.Errorf("configuration: %w; set its bridge back to %s until these have ended, or make a pool of another name on the other bridge", err, stays.Bridge)
	} else if errors.Is(err, ipam.ErrPoolNotEmpty) {
		return fmt.Errorf("configuration: %w; set its prefix back, and give a prefix that does not overlap it a pool of another name", err)
	} else if err != nil {
		return fmt.Errorf("configuration: %w", err)
	}
	for _, o := range changed {
		log.Info("the configuration has changed a pool", "pool", o.Pool.Name, "prefix", o.Pool.Prefix, "generation", o.Pool.Generation, "left_outside", outside(o))
		if o.Was != nil && o.Was.State == ipam.PoolDraining && o.Pool.State != ipam.PoolDraining {
			log.Warn("a pool drains no more: the configuration has changed a line of it", "pool", o.Pool.Name, "next", "ipamctl pool drain "+o.Pool.Name)
		}
		if o.Was != nil && o.Was.Bridge != o.Pool.Bridge && o.Stay > 0 {
			log.Warn("a pool with leases is on another bridge, because its own is gone", "pool", o.Pool.Name, "was", o.Was.Bridge, "bridge", o.Pool.Bridge, "leases", o.Stay)
		}
	}
	now := book.Pools()
	for _, s := range specs {
		i := slices.IndexFunc(now, func(p *ipam.Pool) bool { return isOf(s, p) })
		if i < 0 || now[i].Prefix != s.Prefix {
			log.Warn("a pool was changed since the configuration gave it, and stays as it is", "pool", s.Name, "configured", s.Prefix, "next", "ipamctl pools")
		}
	}
	return nil
}

// outside counts the leases that a change left outside their pool.
func outside(o *ipam.PoolOutcome) (n int) {
	for _, e := range o.Effects {
		if e.Effect == ipam.LeaseOutside {
			n++
		}
	}
	return n
}

// reportUnnamed reports pools that the configuration has given up.
func (c *Configuration) reportUnnamed() {
	for _, pool := range c.cfg.Book.Unconfigured() {
		c.cfg.Log.Warn("the configuration does not name a pool of the book; it is kept as it was",
			"pool", pool.Name, "prefix", pool.Prefix, "next", config.RepairUnnamed)
	}
}
