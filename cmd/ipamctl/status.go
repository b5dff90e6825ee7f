package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"github.com/ipamd/ipamd/api"
)

// statusAnswer is a status with what only this end knows.
type statusAnswer struct {
	*api.Status
	Client build `json:"client"`
	Skew   bool  `json:"skew"` // ipamctl and the daemon are not of one build
}

func (c *ctl) statusAnswer(s *api.Status) statusAnswer {
	return statusAnswer{s, c.build, c.build.differs(&api.VersionReply{Version: s.Version, Commit: s.Commit})}
}

func (c *ctl) statusCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Is ipamd ready, and if not, what is missing",
		Long: `Shows whether addresses can be given and why not, the pools with a bar of their
use, what is stuck, what is quarantined, the witnesses that could not answer,
the addresses that two claim, the last conflict, over or not, the daemon, its
bridge and its book, and the last pass of the reconciler.

The code is 0 when ipamd is ready and 5 when it is not; 7 when nobody listens on
its socket. Where systemd listens, a daemon that cannot start gives no sign of
life: after 3 s, or a --timeout that was given, the code is 5, and "systemctl
status ipamd" and "journalctl -u ipamd" say why.
-q prints "ready" or "not ready".`,
		Example: "  ipamctl status\n  ipamctl status -q || ipamctl doctor\n  ipamctl status -o json | jq .ready",
		Args:    nothing,
		RunE:    func(cmd *cobra.Command, _ []string) error { return c.showStatus(cmd) },
	}
}

// showStatus asks once, answers, and ends with the code of status.
func (c *ctl) showStatus(cmd *cobra.Command) error {
	ctx, cancel, ipamd := c.call(cmd, 0)
	defer cancel()
	status, err := ipamd.Status(ctx)
	if err != nil {
		return err
	}
	s := c.statusAnswer(status)
	if err := c.answer(s, []string{readiness(status)}, func(p *page) { c.drawStatus(p, s) }); err != nil {
		return err
	}
	if !s.Ready {
		return told(exitUnavailable)
	}
	return nil
}

func readiness(s *api.Status) string {
	if s.Ready {
		return "ready"
	}
	return "not ready"
}

// drawStatus puts what needs a person first.
func (c *ctl) drawStatus(p *page, s statusAnswer) {
	verdict := p.good(readiness(s.Status))
	if !s.Ready {
		verdict = p.bad(readiness(s.Status))
	}
	p.text("", fmt.Sprintf("ipamd %s is %s", sentence(s.Version), verdict))
	for _, reason := range s.NotReady {
		p.text("  ", p.bad(sentence(reason)))
	}
	if s.Skew {
		p.text("  ", p.warn(fmt.Sprintf("ipamctl is another build, %s: restart ipamd, or use its own ipamctl", c.build.name())))
	}
	if n := conflicts(s.Status); n > 0 {
		p.text("  ", p.bad(plural(n, "address")+" in conflict: two use or claim it"))
	}
	if s.UnreadableRows > 0 {
		p.text("  ", p.bad(plural(s.UnreadableRows, "row")+" of the book cannot be read: ipamctl doctor"))
	}
	if len(s.Pools) > 0 {
		p.heading("Pools")
		c.drawBars(p, s.Pools)
	}
	c.drawStuck(p, s.Status)
	c.drawAside(p, s.Status)
	c.drawSilent(p, s.Silent)
	drawGaps(p, s.Bridge.Gaps)
	c.drawConflicts(p, s.Status)
	c.drawLastConflict(p, s.Status)
	p.heading("Daemon")
	p.lists(
		list{"daemon", []string{fmt.Sprintf("pid %d", s.PID), "up " + span(c.now().Sub(s.Started)), "commit " + maybe(s.Commit)}},
		list{"bridge", drawBridge(p, s.Bridge)},
		list{"book", drawBook(p, s.Book)},
		list{"commits", drawCommits(s.Status)},
		list{"runner", []string{maybe(s.Book.RunnerUID)}},
		list{"revision", []string{fmt.Sprintf("%d of epoch %s", s.Revision, maybe(s.Epoch))}},
		list{"allocation", []string{sentence(s.Allocation)}},
		list{"last pass", c.drawLastPass(p, s.LastPass)},
		list{"findings", drawCounted(p, s.Findings)},
	)
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
	p.table(wrapping("WITNESS", "SINCE", "REASON"), rows)
}

// drawGaps shows where no witness can look.
func drawGaps(p *page, gaps []string) {
	if len(gaps) == 0 {
		return
	}
	p.heading("Not visible")
	rows := make([][]string, len(gaps))
	for i, g := range gaps {
		rows[i] = []string{p.warn(sentence(g))}
	}
	p.table(wrapping("GAP"), rows)
}

// drawLastPass is what is to say about the reconciler.
func (c *ctl) drawLastPass(p *page, r *api.Report) []string {
	if r == nil {
		return []string{p.warn("none yet")}
	}
	said := []string{c.ago(r.Started) + ": " + tally(p, r)}
	if r.Held != nil {
		said = append(said, p.warn("look: ipamctl reconcile --preview"))
	}
	return said
}

// drawCounted is how much doctor finds at this moment.
func drawCounted(p *page, byKind map[string]int) []string {
	var parts []string
	for _, kind := range slices.Sorted(maps.Keys(byKind)) {
		parts = append(parts, p.warn(fmt.Sprintf("%d %s", byKind[kind], word(kind))))
	}
	if len(parts) == 0 {
		return []string{"none"}
	}
	return append(parts, "see ipamctl doctor")
}

func drawBridge(p *page, b api.BridgeStatus) []string {
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
	return parts
}

func drawBook(p *page, b api.BookStatus) []string {
	parts := []string{
		word(b.Path), humanize.IBytes(uint64(max(b.Bytes, 0))), "wal " + humanize.IBytes(uint64(max(b.WALBytes, 0))),
	}
	if b.ReadOnly != "" {
		parts = append(parts, p.bad("read-only: "+sentence(b.ReadOnly)))
	}
	if b.Growing != "" {
		parts = append(parts, p.warn("grows: "+sentence(b.Growing)))
	}
	if b.Exposed != "" {
		parts = append(parts, p.warn("others may change it: "+sentence(b.Exposed)))
	}
	return parts
}

func drawCommits(s *api.Status) []string {
	parts := []string{"synchronous " + maybe(s.Book.Synchronous)}
	if s.CommitP50 > 0 {
		parts = append(parts, "half of them within "+s.CommitP50.Round(time.Microsecond).String(),
			"99 % within "+s.CommitP99.Round(time.Microsecond).String())
	}
	return parts
}

// name is how a person tells one build from another.
func (b build) name() string {
	return strings.TrimSpace(sentence(b.Version) + " " + sentence(b.Commit))
}
