package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"github.com/ipamd/ipamd/api"
)

func (c *ctl) statusCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Is ipamd ready, and if not, what is missing",
		Long: `Shows the daemon, its bridge, its book and its pools, the last pass of the
reconciler, the witnesses that could not answer, and the last conflict. An ipamd
that is not ready is an answer too: the exit code is 0. -q prints "ready" or
"not ready".`,
		Example: "  ipamctl status\n  ipamctl status -o json | jq .ready",
		Args:    nothing,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cancel, ipamd := c.call(cmd, 0)
			defer cancel()
			status, err := ipamd.Status(ctx)
			if err != nil {
				return err
			}
			ready := "ready"
			if !status.Ready {
				ready = "not ready"
			}
			return c.answer(status, []string{ready}, func(p *page) { c.drawStatus(p, status) })
		},
	}
}

func (c *ctl) drawStatus(p *page, s *api.Status) {
	verdict := p.good("ready")
	if !s.Ready {
		verdict = p.bad("not ready")
	}
	p.line("ipamd %s is %s", sentence(s.Version), verdict)
	for _, reason := range s.NotReady {
		p.line("  %s", p.bad(sentence(reason)))
	}
	p.fields(
		[2]string{"daemon", fmt.Sprintf("pid %d, up %s, commit %s", s.PID, span(c.now().Sub(s.Started)), maybe(s.Commit))},
		[2]string{"bridge", drawBridge(p, s.Bridge)},
		[2]string{"book", drawBook(p, s)},
		[2]string{"runner", maybe(s.Book.RunnerUID)},
		[2]string{"revision", fmt.Sprintf("%d of epoch %s", s.Revision, maybe(s.Epoch))},
		[2]string{"allocation", sentence(s.Allocation)},
		[2]string{"last pass", c.drawLastPass(p, s.LastPass)},
	)
	if s.UnreadableRows > 0 {
		p.line("  %s", p.bad(plural(s.UnreadableRows, "row")+" of the book cannot be read: ipamctl doctor"))
	}
	c.drawSilent(p, s.Silent)
	if len(s.Pools) > 0 {
		p.heading("Pools")
		c.drawPools(p, s.Pools)
	}
	if l := s.LastConflict; l != nil {
		p.heading("Last conflict")
		p.line("  %s %s, %s: ipamctl whois %s", word(l.Address), c.ago(l.At), sentence(l.Reason), word(l.Address))
	}
}

func (c *ctl) drawSilent(p *page, silent []api.Silence) {
	if len(silent) == 0 {
		return
	}
	p.heading("Silent witnesses")
	rows := make([][]string, len(silent))
	for i, w := range silent {
		rows[i] = []string{p.warn(word(w.Witness)), c.ago(w.Since), sentence(w.Reason)}
	}
	p.table(columns("WITNESS", "SINCE", "REASON"), rows)
}

// drawLastPass is one line about the reconciler.
func (c *ctl) drawLastPass(p *page, r *api.Report) string {
	if r == nil {
		return p.warn("none yet")
	}
	line := c.ago(r.Started) + ": " + tally(p, r)
	if n := len(r.Reports); n > 0 {
		line += ", " + p.warn(plural(n, "finding")+" for a person: ipamctl doctor")
	}
	if r.Held != nil {
		line += "; look: ipamctl reconcile --preview"
	}
	return line
}

func drawBridge(p *page, b api.BridgeStatus) string {
	parts := []string{word(b.Name) + " " + p.good("ready")}
	if !b.Ready {
		parts[0] = word(b.Name) + " " + p.bad("not ready: "+sentence(b.Reason))
	}
	if b.Managed {
		parts = append(parts, "managed by ipamd")
	}
	parts = append(parts, plural(b.Ports, "port"))
	if b.MTU > 0 {
		parts = append(parts, fmt.Sprintf("mtu %d", b.MTU))
	}
	if b.MAC != "" {
		parts = append(parts, "mac "+word(b.MAC))
	}
	return strings.Join(parts, ", ")
}

func drawBook(p *page, s *api.Status) string {
	b := s.Book
	parts := []string{
		word(b.Path), humanize.IBytes(uint64(max(b.Bytes, 0))),
		"wal " + humanize.IBytes(uint64(max(b.WALBytes, 0))), "synchronous " + maybe(b.Synchronous),
	}
	if s.CommitP50 > 0 {
		parts = append(parts, "half the commits within "+s.CommitP50.Round(time.Microsecond).String())
	}
	if b.ReadOnly != "" {
		parts = append(parts, p.bad("read-only: "+sentence(b.ReadOnly)))
	}
	return strings.Join(parts, ", ")
}
