package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/binding"
	"github.com/ipamd/ipamd/bridge"
	"github.com/ipamd/ipamd/doctor"
	"github.com/ipamd/ipamd/enforce"
	"github.com/ipamd/ipamd/netdb"
	"github.com/ipamd/ipamd/watchdog"
)

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
			Book:   p.book, Kernel: ports{p.bridge}, Boot: netdb.Now().BootID, Every: time.Duration(p.cfg.Reconcile.Every), Log: p.log,
		})
		return err
	})
	if err != nil {
		return fmt.Errorf("enforce.mode is %q: %w; load the kernel's nf_tables for bridges, or set it to \"off\"", c.Mode, err)
	}
	p.onClose(p.keeper.Close)
	return nil
}

// rules is what a bind waits for; nil where no rules are kept.
func (p *program) rules() binding.Rules {
	if p.keeper == nil {
		return nil
	}
	return p.keeper
}

// cooling is the book as the watchdog writes it: an address cools once no rule allows it.
func (p *program) cooling() watchdog.Book {
	if p.keeper == nil {
		return p.book
	}
	return binding.Cooling{Book: p.book, Rules: p.keeper}
}

// ports are the bridges as the rules see them.
type ports struct{ *bridge.Group }

func (p ports) Ports() (out []enforce.Port) {
	for _, l := range p.PortLinks() {
		out = append(out, enforce.Port(l))
	}
	return out
}

func (p ports) PortNamed(name string) (enforce.Port, bool) {
	l, is := p.PortLink(name)
	return enforce.Port(l), is
}

func (p ports) Bridges() (out []enforce.Bridge) {
	for _, own := range p.Own() {
		out = append(out, enforce.Bridge(own))
	}
	return out
}

// startRules makes the rules once the ports are known, before the first pass. What fails
// is tried again, and keeps binds waiting, not the daemon.
func (p *program) startRules(ctx context.Context) {
	if p.keeper == nil {
		return
	}
	if err := p.keeper.Start(ctx); err != nil && !errors.Is(err, context.Canceled) {
		p.log.Warn("the rules do not hold yet", "err", err)
	}
}

// showRules is what nftables holds the ports to; of one lease, where it is named.
func (p *program) showRules(ctx context.Context, lease string) (*api.RulesReply, error) {
	return doctor.ShowRules(ctx, p.keeper, p.book, p.cfg.Enforce, lease)
}
