package reconciler

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/workload"
)

const (
	// contestWithin is how long another has to be seen on a held address before
	// the history says so: a sandbox that is plugged anew is on another port than
	// its lease records until its runtime binds it.
	contestWithin = 250 * time.Millisecond
	// calmLeast is how long a conflict has to be out of sight to be over. It
	// doubles with each conflict of the lease up to calmMost, and starts again
	// after so long a calm: a stranger that comes and goes writes a row now and
	// then, not one each time.
	calmLeast = 5 * time.Second
	calmMost  = 10 * time.Minute
	// evidenceMost is how many sightings the history keeps of one conflict.
	evidenceMost = 16
	// notesMost begins of conflicts are written at once, and then one each
	// noteEvery: who answers for every address of a large pool must not push
	// the rest of the history out. What is not written is found all the same.
	notesMost = 256
	noteEvery = 10 * time.Second
)

// A contest is what was observed of one held address that another was seen on.
// It is kept in memory only: after a restart the calm is measured anew, and that
// a conflict stands is in the lease.
type contest struct {
	seen  bool       // another is on it
	since ipam.Stamp // it is so
	noted bool       // the lease says that a conflict stands
	begun int        // conflicts that were noted, since the last long calm
}

// calm is how long the conflict has to be out of sight to be over.
func (c contest) calm() time.Duration {
	calm := calmLeast
	for range min(c.begun-1, 10) {
		calm *= 2
	}
	return min(calm, calmMost)
}

// conflict decides about another that is, or was, on the address of a held
// lease, and reports that there is nothing else to decide about the lease.
func (v *view) conflict(d *decision, l *ipam.Lease, before map[string]contest) (done bool) {
	f, seen := v.dispute(l)
	claims := seen && v.claimed(l)
	if claims && l.State == ipam.Reserved {
		seen = false
		if l.Conflict == nil {
			d.findings = append(d.findings, f)
		}
	}
	kind := v.contested(d, l, before, seen)
	s := step{lease: l}
	if kind != "" {
		s.evidence = v.conflictEvidence(l)
	}
	switch {
	case seen:
		d.findings = append(d.findings, f)
		if kind == ConflictSeen {
			d.add(s, ConflictSeen, "%s", f.Detail)
		}
	case l.Conflict == nil:
		return false
	case kind == ConflictOver:
		d.add(s, ConflictOver, "no witness has shown another on it for %v", v.now.Since(d.contests[l.ID].since).Round(time.Second))
	default:
		d.findings = append(d.findings, v.quiet(l))
	}
	d.standing++
	return seen && !claims || kind != ""
}

// claimed reports whether nothing but claims shows another on the address of a lease:
// they keep its own workload from nothing. Those on a reserved one are labels, a finding
// and nothing of its history; on one that is bound or paused, frames are no more.
func (v *view) claimed(l *ipam.Lease) bool {
	seen, others := workload.SeenOf(v.census, l), v.others(l)
	shows := func(s census.Sighting) bool {
		return s.Witness == census.Netns || s.Witness == census.Host || l.State == ipam.Reserved && s.Witness != census.Runtime
	}
	return !slices.ContainsFunc(v.leases.Strangers(l, seen), shows) &&
		!slices.ContainsFunc(seen, func(s census.Sighting) bool { return shows(s) && len(v.at(others, s)) > 0 })
}

// others returns the containers that claim a lease's address and do not belong to it.
func (v *view) others(l *ipam.Lease) []census.Sighting {
	own := v.of(l)
	return slices.DeleteFunc(slices.Clone(workload.SeenOf(v.census, l)), func(s census.Sighting) bool { return s.Witness != census.Runtime || slices.Contains(own, s) })
}

// contested observes one held lease. before is what was observed earlier and d
// takes what is observed now. It reports what the history has to say of it, an
// action's kind or "", and sets in d when time alone changes that.
func (v *view) contested(d *decision, l *ipam.Lease, before map[string]contest, seen bool) string {
	c, known := before[l.ID]
	noted := l.Conflict != nil
	if !known && !seen && !noted {
		return ""
	}
	if !known || c.seen != seen {
		c.seen, c.since = seen, v.now
	}
	if noted && !c.noted {
		c.begun++
	}
	c.noted = noted
	kind, wait := "", time.Duration(0)
	switch lasts := v.now.Since(c.since); {
	case seen && !noted:
		kind, wait = ConflictSeen, contestWithin-lasts
	case !seen && noted && v.census.CompleteAbout(l.Addr):
		kind, wait = ConflictOver, c.calm()-lasts
	case !seen && !noted && lasts >= calmMost:
		return "" // forgotten
	}
	d.contests[l.ID] = c
	if wait > 0 {
		if d.again == 0 || wait < d.again {
			d.again = wait
		}
		kind = ""
	}
	return kind
}

// quiet is the finding of a conflict that stands and that no witness shows now.
func (v *view) quiet(l *ipam.Lease) Finding {
	f := Finding{Kind: "conflict", Addr: l.Addr, LeaseID: l.ID, Since: l.Since.Wall, Repair: whois(l.Addr)}
	then := census.ParseEvidence(l.Conflict)
	if len(then) == 0 {
		then = []census.Sighting{{Witness: "?", At: f.Since}}
	}
	f.Since = then[0].At
	f.Detail = fmt.Sprintf("held by sandbox %q; the %s witness saw it under another%s, and does not now", l.Sandbox, then[0].Witness, then[0].Where())
	return f
}

// conflictEvidence is what the history keeps of a conflict: the strangers first,
// then what else is seen of the address. It is nil when nothing is.
func (v *view) conflictEvidence(l *ipam.Lease) json.RawMessage {
	seen := workload.SeenOf(v.census, l)
	if len(seen) == 0 {
		return nil
	}
	kept := v.leases.Strangers(l, seen)
	if len(kept) == 0 { // a second claimant that names no sandbox
		kept = v.others(l)
	}
	for _, s := range seen {
		if !slices.Contains(kept, s) {
			kept = append(kept, s)
		}
	}
	return evidence(kept[:min(len(kept), evidenceMost)])
}
