package main

import (
	"fmt"
	"slices"
	"time"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/internal/term"
)

// A holding is one lease's time with an address, read from its changes.
type holding struct {
	lease, address, sandbox string

	from    time.Time // taken; zero: before the changes that are there
	until   time.Time // released; zero: held still, as far as the changes show
	why, by string    // it ended
	now     api.State // after the newest change
	first   int64     // revision of the oldest change that is there
	last    int64     // and of the newest
}

// holdings reads who held what from changes, which come newest first, and
// answers in the same order. A quarantine is no holding; a lease that
// was released and adopted again has two.
func holdings(changes []api.Change) []holding {
	var out []holding
	latest := map[[2]string]int{} // by lease and address
	for _, ch := range slices.Backward(changes) {
		key := [2]string{ch.LeaseID, ch.Address}
		taken := !held(ch.From) && held(ch.To)
		at, known := latest[key]
		switch {
		case ch.Sandbox == "" && !known:
			continue
		case !known || taken:
			at = len(out)
			latest[key] = at
			out = append(out, holding{lease: ch.LeaseID, address: ch.Address, sandbox: ch.Sandbox, first: ch.Revision})
			if taken {
				out[at].from = ch.At
			}
		}
		t := &out[at]
		t.now, t.last = ch.To, ch.Revision
		if held(ch.From) && !held(ch.To) {
			t.until, t.why, t.by = ch.At, ch.Reason, ch.Actor
		}
	}
	slices.Reverse(out)
	return out
}

// held reports whether a sandbox has the address to itself in a state.
func held(s api.State) bool {
	return s == api.Reserved || s == api.Bound || s == api.Paused
}

func (p *page) drawHoldings(all []holding) {
	if len(all) == 0 {
		return
	}
	rows := make([][]string, len(all))
	for i, t := range all {
		from, until, ended := "earlier", "still", "-"
		if !t.from.IsZero() {
			from = p.clock(t.from)
		}
		switch {
		case !t.until.IsZero():
			until = p.clock(t.until)
			ended = term.Sentence(t.why) + " by " + term.Word(t.by)
		case !held(t.now):
			until = "earlier"
		}
		revisions := fmt.Sprint(t.first)
		if t.last != t.first {
			revisions = fmt.Sprintf("%d-%d", t.first, t.last)
		}
		rows[i] = []string{term.Word(t.address), term.Word(t.sandbox), from, until, ended, p.state(t.now), revisions, term.Word(t.lease)}
	}
	p.Heading("Holders, newest first")
	cols := term.Columns("ADDRESS", "SANDBOX", "FROM", "UNTIL", "ENDED", "NOW", "REVISIONS", "LEASE")
	cols[1].Yield = true
	p.Table(cols, rows)
}

// clock writes a time as logs do, where the person is.
func (p *page) clock(t time.Time) string { return t.In(p.now().Location()).Format(time.RFC3339) }
