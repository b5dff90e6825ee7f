package main

import (
	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/server"
	"github.com/ipamd/ipamd/warm"
)

// openWarm makes the keeper of warm slots, which has helper make them.
func (p *program) openWarm(helper server.SlotHelper) {
	p.warm = warm.New(warm.Config{
		Book: p.book, Helper: helper, Profile: p.slotProfile, Allocator: p.allocator, Board: p.board, Ports: p.bridge, Watchdog: p.watchdog,
		NoHelper: server.ErrNoWarmHelper, Log: p.log, OnMade: p.metrics.SlotMade, OnFailed: p.metrics.SlotFailed,
	})
}

// slotProfile is what slots of a bridge's pools are made by, beside these.
func (p *program) slotProfile(bridge string) ipam.Profile {
	out := p.cfg.SlotProfile()
	out.BridgeMTU = p.bridge.MTU(bridge)
	return out
}

// slotOwner names the owner of a slot's port, by what a lease records of it.
func (p *program) slotOwner(netns, host string) string {
	return warm.Owner(p.book.Identity().RunnerUID, netns, host)
}
