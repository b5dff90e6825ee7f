package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/binding"
	"github.com/ipamd/ipamd/bridge"
	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/doctor"
	"github.com/ipamd/ipamd/enforce"
	"github.com/ipamd/ipamd/gateways"
	"github.com/ipamd/ipamd/ipam"
)

// The kernel is what is kept there: the bridges as the pools want them, and the rules of their ports.
type kernel struct {
	netns       string // of the bridges; "" is the process's own. Tests set it.
	bridge      *bridge.Group
	follower    *gateways.Follower // of the pools, by the bridges
	poolsBefore []*ipam.Pool       // as the book had them when it was opened
	keeper      *enforce.Keeper    // nil while enforce.mode is off
	rules       binding.Rules      // what a bind waits for: keeper, or nil
}

// openBridge opens the bridges of the pools.
func (p *program) openBridge(ctx context.Context) (err error) {
	var expected []census.Witness // beside those of the bridges
	if p.cfg.Runtime.Kind != "none" {
		expected = append(expected, census.Runtime)
	}
	p.board = census.NewBoard(expected...)
	p.follower = gateways.New(gateways.Config{Book: p.book, Bridge: p.cfg.Bridge.Name, MTU: p.cfg.Bridge.MTU, Every: time.Duration(p.cfg.Bridge.Refresh), Log: p.log,
		Manage: p.cfg.Bridge.Manage, Missing: p.missingBridges, Configured: p.configured.Pools})
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

// missingBridges are those of some bridges that the kernel does not have.
func (k *kernel) missingBridges(names ...string) ([]string, error) {
	return bridge.Missing(k.netns, names...)
}

// openEnforce opens the part that keeps the rules, where they are asked for. Else the table
// of an earlier configuration is taken away, and nothing else in the kernel is changed.
func (p *program) openEnforce(ctx context.Context) (err error) {
	c := p.cfg.Enforce
	if c.Mode == string(enforce.Off) {
		var removed bool
		err := p.bridge.Inside(func() (err error) { removed, err = enforce.Remove(ctx); return err })
		if err != nil {
			p.log.Warn("cannot see whether there are rules to be taken away", "err", err, "next", "nft list table bridge "+enforce.TableName)
		}
		if removed {
			p.log.Info("the rules are taken away: enforce.mode is off")
		}
		return nil
	}
	err = p.bridge.Inside(func() (err error) {
		p.keeper, err = enforce.Open(ctx, enforce.Config{
			Policy: enforce.Policy{Mode: enforce.Mode(c.Mode), DropUnleased: c.Unleased == "drop", Trusted: c.Trusted},
			Book:   p.book, Kernel: p.bridge, Boot: ipam.Now().BootID, Every: time.Duration(p.cfg.Reconcile.Every), Log: p.log,
		})
		return err
	})
	if err != nil {
		return fmt.Errorf("enforce.mode is %q: %w; load the kernel's nf_tables for bridges, or set it to \"off\"", c.Mode, err)
	}
	p.rules = p.keeper
	p.onClose(p.keeper.Close)
	return nil
}

// startRules makes the rules once the ports are known, before the first pass. What fails
// is tried again, and keeps binds waiting, not the daemon.
func (k *kernel) startRules(ctx context.Context, log *slog.Logger) {
	if k.keeper == nil {
		return
	}
	if err := k.keeper.Start(ctx); err != nil && !errors.Is(err, context.Canceled) {
		log.Warn("the rules do not hold yet", "err", err)
	}
}

// showRules is what nftables holds the ports to; of one lease, where it is named.
func (p *program) showRules(ctx context.Context, lease string) (*api.RulesReply, error) {
	return doctor.ShowRules(ctx, p.keeper, p.book, p.cfg.Enforce, lease)
}
