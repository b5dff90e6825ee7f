package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/internal/term"
)

func reconcileCommand(c *ctl) *cobra.Command {
	var req api.ReconcileRequest
	cmd := &cobra.Command{
		Use:   "reconcile",
		Short: "Compare book, wire and runtime now, and repair what is safe",
		Long: `Makes one pass of the reconciler, as the daemon does by itself every few
minutes, and shows each step with its reason and its result. With --preview it
shows the plan and does nothing.

A pass that would release more leases than a pass may, or that finds no
container at all, releases none: they are held until a person has looked at
them and says --confirm. Nothing is released while a witness cannot answer, with
--confirm or without.

With watchdog.remove_orphans few sandboxes an hour are ended on their owner's
word: 5, or a tenth of all. The others wait; doctor names them and their set,
and --confirm-orphans SET ends them, if they are the same still.

The code is 0 when all is done or there is nothing to do, 8 when something was
held back or a step failed, and 5 when a witness could not be asked. Without
--timeout it waits for as long as the daemon gives a pass; a pass that has begun
goes on when ipamctl ends. -q prints the addresses.`,
		Example: `  ipamctl reconcile --preview
  ipamctl reconcile
  ipamctl reconcile --confirm -o json`,
		Args: nothing,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if req.Preview && req.Confirm {
				return usageError{message: "--preview and --confirm exclude each other",
					hint: "first look: ipamctl reconcile --preview; then: ipamctl reconcile --confirm"}
			}
			if req.Preview && req.ConfirmOrphans != "" {
				return usageError{message: "--preview and --confirm-orphans exclude each other",
					hint: "first look: ipamctl doctor; then: ipamctl reconcile --confirm-orphans SET"}
			}
			ctx, cancel, ipamd := c.callPass(cmd)
			defer cancel()
			stop := c.progress("comparing book, wire and runtime")
			reply, err := ipamd.Reconcile(ctx, req)
			stop()
			if err != nil {
				return err
			}
			if err := c.answer(reply, actedOn(reply.Report.Actions), func(p *page) { p.drawReport(&reply.Report) }); err != nil {
				return err
			}
			return outcome(&reply.Report)
		},
	}
	f := cmd.Flags()
	f.BoolVar(&req.Preview, "preview", false, "show the plan and do nothing")
	f.BoolVar(&req.Confirm, "confirm", false, "also release what is held for being too much in one pass")
	f.StringVar(&req.ConfirmOrphans, "confirm-orphans", "", "also end the orphans that are held for being too many; `SET` is what doctor calls them")
	return cmd
}

// actedOn is the addresses of the steps.
func actedOn(actions []api.Action) []string {
	addrs := make([]string, len(actions))
	for i, a := range actions {
		addrs[i] = a.Address
	}
	return addrs
}

// outcome is what a script gets of a pass. A step that was skipped is none
// that failed: its lease changed meanwhile, and the next pass looks again.
func outcome(r *api.Report) error {
	left := func(a api.Action) bool { return a.Result == "held" || failed(a) }
	switch {
	case r.Held != nil || slices.ContainsFunc(r.Actions, left):
		return exitWith(exitHeld)
	case !r.Complete:
		return exitWith(exitUnavailable)
	}
	return nil
}

// drawReport writes a pass for a person: the steps, one line about all of it,
// and what is left for the person to do.
func (p *page) drawReport(r *api.Report) {
	if len(r.Actions) > 0 {
		cols := term.Columns("KIND", "ADDRESS", "SANDBOX", "RESULT", "REASON")
		cols[2].Yield = true
		table(p, cols, r.Actions, func(a api.Action) []string {
			reason := term.Sentence(a.Reason)
			if a.Error != "" {
				reason += ": " + term.Sentence(a.Error)
			}
			return []string{term.Word(a.Kind), term.Word(a.Address), term.Maybe(a.Sandbox), p.result(a), reason}
		})
		p.Line("")
	}
	p.Line("%s", p.tally(r))
	p.drawSilent(r.Silent)
	if h := r.Held; h != nil {
		p.Heading("Held")
		p.Line("%s", p.Warn(term.Sentence(h.Reason)))
	}
	if len(r.Reports) > 0 {
		p.Heading("For a person to decide")
		p.drawFindings(r.Reports)
	}
	if next := nextStep(r); next != "" {
		p.Line("\nnext: %s", next)
	}
}

// failed reports that a step was tried and could not be taken. One whose lease
// changed meanwhile has no error: it was not wanted any more.
func failed(a api.Action) bool { return a.Error != "" }

// resulted finds the steps that ended so and did not fail.
func resulted(result string) func(api.Action) bool {
	return func(a api.Action) bool { return a.Result == result && !failed(a) }
}

// tally is a pass in one line.
func (p *page) tally(r *api.Report) string {
	var parts []string
	add := func(what string, paint func(string) string, of func(api.Action) bool) {
		n := 0
		for _, a := range r.Actions {
			if of(a) {
				n++
			}
		}
		if n > 0 {
			parts = append(parts, paint(fmt.Sprintf("%d %s", n, what)))
		}
	}
	asItIs := func(s string) string { return s }
	add("planned", asItIs, resulted("planned"))
	add("done", p.Good, resulted("done"))
	add("skipped", asItIs, resulted("skipped"))
	add("held", p.Warn, resulted("held"))
	add("failed", p.Bad, failed)
	steps := strings.Join(parts, ", ")
	switch {
	case steps != "":
		steps = term.Plural(len(r.Actions), "step") + ": " + steps
	case r.Complete && len(r.Reports) == 0:
		steps = "nothing to do, all agree"
	default:
		steps = "nothing to do"
	}
	if !r.Complete {
		steps += "; " + p.Warn("a witness could not answer, so nothing was released")
	}
	if r.Held != nil && !slices.ContainsFunc(r.Actions, resulted("held")) {
		steps += "; " + p.Warn("releases are held")
	}
	return fmt.Sprintf("%s; %s compared, %s seen, %d absent, in %s", steps,
		term.Plural(r.Leases, "lease"), term.Plural(r.Seen, "address"), r.Absent, r.Took.Round(time.Millisecond/10))
}

// nextStep is what a person would type now; "" when there is nothing.
func nextStep(r *api.Report) string {
	switch {
	case r.Held != nil && r.Preview:
		return "ipamctl reconcile --confirm, once every step that is held is looked at"
	case r.Held != nil:
		return "ipamctl reconcile --preview, then ipamctl reconcile --confirm"
	case !r.Complete:
		return "ipamctl status, which says why a witness is silent"
	case slices.ContainsFunc(r.Actions, failed):
		return "ipamctl reconcile, which tries again; the daemon's log has more: journalctl -u ipamd"
	case r.Preview && len(r.Actions) > 0:
		return "ipamctl reconcile"
	}
	return ""
}

// result is what became of one step.
func (p *page) result(a api.Action) string {
	switch {
	case failed(a):
		return p.Bad("failed")
	case a.Result == "done":
		return p.Good(a.Result)
	case a.Result == "held":
		return p.Warn(a.Result)
	default:
		return term.Sentence(a.Result)
	}
}
