package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/ipamd/ipamd/allocator"
	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/internal/supervisor"
)

// gate is why the allocator may not give addresses; nil: it may.
func (p *program) gate() error {
	if err := p.book.Identity(); err != nil {
		return err
	}
	if !p.counted.Load() {
		return fmt.Errorf("%w: the first census is not done", allocator.ErrNotReady)
	}
	if err := p.bridge.Ready(); err != nil {
		return fmt.Errorf("%w: %s", allocator.ErrBridge, p.bridge.Status().Reason)
	}
	return nil
}

// notReady lists every reason why addresses cannot be given now, but that the
// pools are full: the server adds that, and [server.Server.NotReady] is whole.
func (p *program) notReady() []string {
	var why []string
	if err := p.gate(); err != nil {
		why = append(why, err.Error())
	}
	bridged := p.counted.Load() && p.bridge.Ready() == nil // else the kernel's witnesses have not looked, and the gate says why
	for _, s := range p.board.Silent() {
		if s.Witness.Kernel() && bridged || p.cfg.Allocation.Require == "all" {
			why = append(why, fmt.Sprintf("the %s witness cannot answer: %s", s.Witness, s.Reason))
		}
	}
	if err := p.book.Info().ReadOnly; err != nil {
		why = append(why, err.Error())
	}
	if err := p.socket.Err(); err != nil {
		why = append(why, err.Error())
	}
	return append(why, p.prover.Silent()...)
}

func (p *program) bridgeStatus() api.BridgeStatus {
	s := p.bridge.Status()
	out := api.BridgeStatus{Name: s.Name, Ready: s.Ready, Reason: s.Reason, Managed: s.Managed, Ports: s.Ports, MAC: s.MAC, MTU: s.MTU}
	for _, g := range s.Gaps[:min(len(s.Gaps), api.MostGaps)] {
		out.Gaps = append(out.Gaps, g.Detail)
	}
	return out
}

func (p *program) confirmOrphans(set string) error {
	if p.sweeper == nil {
		return errors.New("no owner is configured, so there are no orphans")
	}
	return p.sweeper.Confirm(set)
}

// status keeps systemd's status line current. It starts after the first pass.
func (p *program) status(ctx context.Context) error {
	return supervisor.Status(ctx, p.log, p.statusLine, p.stopping.Load)
}

// statusLine is what `systemctl status ipamd` shows.
func (p *program) statusLine() string {
	if why := p.server.NotReady(); len(why) > 0 {
		return "STATUS=not ready: " + strings.ReplaceAll(strings.Join(why, "; "), "\n", " ")
	}
	usage, _ := p.book.Usage()
	pools := make([]string, len(usage))
	for i, u := range usage {
		held := 0
		for _, n := range u.ByState {
			held += n
		}
		pools[i] = fmt.Sprintf("%s %d of %d addresses", u.Pool.Prefix, held, u.Size)
	}
	return "STATUS=ready: " + strings.Join(pools, ", ")
}
