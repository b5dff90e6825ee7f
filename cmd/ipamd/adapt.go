package main

import (
	"context"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/doctor"
	"github.com/ipamd/ipamd/internal/supervisor"
	"github.com/ipamd/ipamd/readiness"
	"github.com/ipamd/ipamd/reconciler"
)

// reconcile makes a pass and reports it as the socket spells it.
func (p *program) reconcile(ctx context.Context, preview, confirm bool) (api.Report, error) {
	r, err := p.reconciler.Pass(ctx, reconciler.Mode{Preview: preview, Confirm: confirm})
	if err != nil {
		return api.Report{}, err
	}
	return doctor.Report(r), nil
}

// lastPass is nil before the first one.
func (p *program) lastPass() *api.Report {
	if last := p.reconciler.Last(); last != nil && p.ready.Counted() {
		r := doctor.Report(last)
		return &r
	}
	return nil
}

// notReady is what socket and parts add to the reasons why addresses cannot be given.
func (p *program) notReady() (why []string) {
	if err := p.socket.Err(); err != nil {
		why = append(why, err.Error())
	}
	return append(why, p.prover.Silent()...)
}

// status keeps systemd's status line current. It starts after the first pass.
func (p *program) status(ctx context.Context) error {
	return supervisor.Status(ctx, p.log, p.statusLine, p.stopping.Load)
}

func (p *program) statusLine() string {
	usage, _ := p.book.Usage()
	return readiness.Line(p.server.NotReady(), usage)
}
