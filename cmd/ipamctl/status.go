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
	"github.com/ipamd/ipamd/internal/build"
	"github.com/ipamd/ipamd/internal/poolmap"
	"github.com/ipamd/ipamd/internal/term"
)

// statusAnswer is a status with what only this end knows.
type statusAnswer struct {
	*api.Status
	Client build.Info `json:"client"`
	Skew   bool       `json:"skew"` // ipamctl and the daemon are not of one build
}

func (c *ctl) statusAnswer(s *api.Status) statusAnswer {
	return statusAnswer{s, c.build, differs(c.build, &api.VersionReply{Version: s.Version, Commit: s.Commit})}
}

func statusCommand(c *ctl) *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Is ipamd ready, and if not, what is missing",
		Long: `Shows whether addresses can be given and why not, the pools with a bar of their
use, what is stuck, what is quarantined, the witnesses that could not answer,
the addresses that two claim, the last conflict, over or not, the daemon, its
bridge and its book, and the last pass of the reconciler.

The code is 0 when ipamd is ready and 5 when it is not; 7 when nothing listens
on its socket. Where systemd listens, a daemon that cannot start gives no sign
of life: after 3 s, or a --timeout that was given, the code is 5, and "systemctl
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
	if err := c.answer(s, []string{readiness(status)}, func(p *page) { p.drawStatus(s) }); err != nil {
		return err
	}
	if !s.Ready {
		return exitWith(exitUnavailable)
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
func (p *page) drawStatus(s statusAnswer) {
	verdict := p.Good(readiness(s.Status))
	if !s.Ready {
		verdict = p.Bad(readiness(s.Status))
	}
	p.Text("", fmt.Sprintf("ipamd %s is %s", term.Sentence(s.Version), verdict))
	for _, reason := range s.NotReady {
		p.Text("  ", p.Bad(term.Sentence(reason)))
	}
	if !s.Ready {
		p.Text("  ", "next: ipamctl doctor")
	}
	if s.Skew {
		p.Text("  ", p.Warn(fmt.Sprintf("ipamctl is another build, %s: restart ipamd, or use its own ipamctl", buildName(s.Client))))
	}
	if n := conflicts(s.Status); n > 0 {
		p.Text("  ", p.Bad(term.Plural(n, "address")+" in conflict: two use or claim it"))
	}
	if s.UnreadableRows > 0 {
		p.Text("  ", p.Bad(term.Plural(s.UnreadableRows, "row")+" of the book cannot be read: ipamctl doctor"))
	}
	if len(s.Pools) > 0 {
		p.Heading("Pools")
		poolmap.Bars(&p.Page, s.Pools, p.unicode)
		if s.Ready { // else it is above
			p.drawNotReady(s.Pools)
		}
	}
	p.drawAllSlots(s.Pools)
	p.drawStuck(s.Status)
	p.drawQuarantined(s.Status)
	p.drawSilent(s.Silent)
	p.drawGaps(s.Bridge.Gaps)
	p.drawConflicts(s.Status)
	p.drawLastConflict(s.Status)
	p.Heading("Daemon")
	lists := []term.List{
		{Name: "daemon", Parts: []string{fmt.Sprintf("pid %d", s.PID), "up " + term.Span(p.now().Sub(s.Started)), "commit " + term.Maybe(s.Commit)}},
		{Name: "bridge", Parts: p.drawBridge(s.Bridge)},
	}
	for _, b := range s.Bridges[min(1, len(s.Bridges)):] { // the first is s.Bridge
		lists = append(lists, term.List{Name: "bridge", Parts: p.drawBridge(b)})
	}
	p.Lists(append(lists,
		term.List{Name: "ports", Parts: p.drawPlumb(s.Plumb)},
		term.List{Name: "book", Parts: p.drawBook(s.Book)},
		term.List{Name: "commits", Parts: drawCommits(s.Status)},
		term.List{Name: "runner", Parts: []string{term.Maybe(s.Book.RunnerUID)}},
		term.List{Name: "revision", Parts: []string{fmt.Sprintf("%d of epoch %s", s.Revision, term.Maybe(s.Epoch))}},
		term.List{Name: "allocation", Parts: []string{term.Sentence(s.Allocation)}},
		term.List{Name: "last pass", Parts: p.drawLastPass(s.LastPass)},
		term.List{Name: "findings", Parts: p.drawCounted(s.Findings)},
	)...)
}

// drawPlumb says whether ports can be made. That they cannot is said once they were asked
// for: ipamd-plumb is optional. Of a daemon before that it is nothing.
func (p *page) drawPlumb(s *api.PlumbStatus) []string {
	switch {
	case s == nil:
		return nil
	case s.Ready:
		return []string{"made by attach"}
	case !s.Wanted:
		return nil
	}
	return []string{"not made: " + term.Sentence(s.Why)}
}

// drawSilent is a line for each reason, such as a bridge that is not there, with the witnesses that are silent for it.
func (p *page) drawSilent(silent []api.Silence) {
	type line struct {
		api.Silence
		of []string
	}
	var lines []*line
	for _, w := range silent {
		i := slices.IndexFunc(lines, func(l *line) bool { return l.Reason == w.Reason })
		if i < 0 {
			i, lines = len(lines), append(lines, &line{Silence: w})
		}
		lines[i].of = append(lines[i].of, term.Word(w.Witness))
		if w.Since.Before(lines[i].Since) {
			lines[i].Since = w.Since
		}
	}
	part(p, "Silent witnesses", term.Wrapping("WITNESS", "SINCE", "REASON"), lines, func(l *line) []string {
		who := strings.Join(l.of, ", ")
		if len(l.of) > 1 {
			who = fmt.Sprintf("%d: %s", len(l.of), who)
		}
		return []string{p.Warn(who), p.ago(l.Since), term.Sentence(l.Reason)}
	})
}

// drawGaps shows where no witness can look.
func (p *page) drawGaps(gaps []string) {
	part(p, "Not visible", term.Wrapping("GAP"), gaps, func(gap string) []string { return []string{p.Warn(term.Sentence(gap))} })
}

// drawLastPass is what is to say about the reconciler.
func (p *page) drawLastPass(r *api.Report) []string {
	if r == nil {
		return []string{p.Warn("none yet")}
	}
	said := []string{p.ago(r.Started) + ": " + p.tally(r)}
	if r.Held != nil {
		said = append(said, p.Warn("look: ipamctl reconcile --preview"))
	}
	return said
}

// drawCounted is how much doctor finds at this moment.
func (p *page) drawCounted(byKind map[string]int) []string {
	var parts []string
	for _, kind := range slices.Sorted(maps.Keys(byKind)) {
		parts = append(parts, p.Warn(fmt.Sprintf("%d %s", byKind[kind], term.Word(kind))))
	}
	if len(parts) == 0 {
		return []string{"none"}
	}
	return append(parts, "see ipamctl doctor")
}

func (p *page) drawBridge(b api.BridgeStatus) []string {
	parts := []string{term.Word(b.Name) + " " + p.Good("ready")}
	if !b.Ready {
		parts[0] = term.Word(b.Name) + " " + p.Bad("not ready: "+term.Sentence(b.Reason))
	}
	if b.Managed {
		parts = append(parts, "managed by ipamd")
	}
	parts = append(parts, term.Plural(b.Ports, "port"))
	if b.MTU > 0 {
		parts = append(parts, fmt.Sprintf("mtu %d", b.MTU))
	}
	if b.MAC != "" {
		parts = append(parts, "mac "+term.Word(b.MAC))
	}
	return parts
}

func (p *page) drawBook(b api.BookStatus) []string {
	parts := []string{
		term.Word(b.Path), humanize.IBytes(uint64(max(b.Bytes, 0))), "wal " + humanize.IBytes(uint64(max(b.WALBytes, 0))),
	}
	if b.ReadOnly != "" {
		parts = append(parts, p.Bad("read-only: "+term.Sentence(b.ReadOnly)))
	}
	if b.Growing != "" {
		parts = append(parts, p.Warn("grows: "+term.Sentence(b.Growing)))
	}
	if b.Exposed != "" {
		parts = append(parts, p.Warn("others may change it: "+term.Sentence(b.Exposed)))
	}
	return parts
}

func drawCommits(s *api.Status) []string {
	parts := []string{"synchronous " + term.Maybe(s.Book.Synchronous)}
	if s.CommitP50 > 0 {
		parts = append(parts, "half of them within "+s.CommitP50.Round(time.Microsecond).String(),
			"99 % within "+s.CommitP99.Round(time.Microsecond).String())
	}
	return parts
}

// buildName is how a person knows one build from another.
func buildName(b build.Info) string {
	return strings.TrimSpace(term.Sentence(b.Version) + " " + term.Sentence(b.Commit))
}
