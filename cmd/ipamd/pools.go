package main

import (
	"context"
	"time"

	"github.com/ipamd/ipamd/bridge"
	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/gateways"
)

// openBridge opens the bridges of the pools.
func (p *program) openBridge(ctx context.Context) (err error) {
	var expected []census.Witness // beside those of the bridges
	if p.cfg.Runtime.Kind != "none" {
		expected = append(expected, census.Runtime)
	}
	p.board = census.NewBoard(expected...)
	p.follower = gateways.New(gateways.Config{Book: p.book, Bridge: p.cfg.Bridge.Name, MTU: p.cfg.Bridge.MTU, Every: time.Duration(p.cfg.Bridge.Refresh), Log: p.log,
		Manage: p.cfg.Bridge.Manage, Missing: p.missingBridges,
		Configured: p.configured.Pools})
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
func (p *program) missingBridges(names ...string) ([]string, error) {
	return bridge.Missing(p.netns, names...)
}
