package watchdog

import (
	"fmt"
	"slices"
	"time"

	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/workload"
)

// A lookedUp is what the runtime said about one container.
type lookedUp struct {
	Look
	err error
}

// facts is what an attempt found out about a lease's workload. Its zero value
// is that nothing was asked, which confirms nothing.
type facts struct {
	runtime bool // there is one

	looks        map[Container]lookedUp // asked by id
	blockNothing map[Container]bool     // containers without a task, and the lease's by a label alone
	reassigned   map[Container]bool     // recorded, and another lease's by now

	ports   bool // were asked
	plugged []census.Plugged
	trace   workload.Trace // of a lease without a port: what the kernel has where it was last known to be
	portErr error

	listed  bool        // the runtime's list was read
	list    []Container // what belongs to the lease, by that list
	listErr error

	wire    *census.Answer // what the witnesses say about the address
	newsErr error          // the kernel's news could not be read before that
	seen    []census.Sighting
}

// obstacles says what of a lease's workload is left, and what could not be
// asked; nothing when its removal is confirmed. Without deep, as in the first stage, the
// list and the wire are not judged: they are read in the second stage.
func obstacles(l *ipam.Lease, f facts, deep bool) []obstacle {
	out := ofContainers(l, f)
	if deep {
		out = append(out, ofList(f)...)
	}
	out = append(out, ofPorts(f)...)
	if deep {
		out = append(out, ofWire(f)...)
	}
	return out
}

func ofContainers(l *ipam.Lease, f facts) (out []obstacle) {
	if !f.runtime {
		if n := len(l.Containers); n > 0 {
			out = append(out, obstruct(KindRuntime, "it records %d containers, and no runtime is configured to ask about them", n))
		}
		return out
	}
	all := slices.Clone(l.Containers)
	for c := range f.looks {
		if !slices.Contains(all, c) {
			all = append(all, c)
		}
	}
	slices.SortStableFunc(all[len(l.Containers):], Container.Compare)
	for _, c := range all {
		got, asked := f.looks[c]
		switch {
		case f.reassigned[c], f.blockNothing[c]:
		case !asked:
			out = append(out, obstruct(KindRuntime, "container %s was not asked about", c))
		case got.err != nil:
			out = append(out, obstruct(KindRuntime, "container %s could not be asked about: %v", c, got.err))
		case got.Found:
			out = append(out, isThere(c, f.seen))
		case got.Task != "":
			out = append(out, obstruct(KindTask, "container %s has no record any more, but a task (%s)", c, got.Task))
		}
	}
	return out
}

// isThere blocks by a record; the task is what the board last saw of it.
func isThere(c Container, seen []census.Sighting) obstacle {
	task := ""
	for _, s := range seen {
		if s.Witness == census.Runtime && s.Namespace == c.Namespace && s.Container == c.ID && s.Task != "" {
			task = " (task " + s.Task + ")"
		}
	}
	o := obstruct(KindContainer, "container %s is there%s", c, task)
	o.container = c
	return o
}

func ofList(f facts) (out []obstacle) {
	switch {
	case !f.runtime:
	case f.listErr != nil:
		out = append(out, obstruct(KindRuntime, "containers could not be listed: %v", f.listErr))
	case !f.listed:
		out = append(out, obstruct(KindRuntime, "containers were not listed"))
	}
	for _, c := range f.list {
		if !f.looks[c].Found { // else reported already
			out = append(out, isThere(c, f.seen))
		}
	}
	return out
}

func ofPorts(f facts) (out []obstacle) {
	switch {
	case f.portErr != nil:
		return append(out, obstruct(KindPort, "the ports could not be read: %v", f.portErr))
	case !f.ports:
		return append(out, obstruct(KindPort, "the ports were not read"))
	}
	if says := f.trace.Keeps(); says != "" { // no news announces its end
		out = append(out, obstruct(KindPort, "%s", says))
	}
	for _, p := range f.plugged {
		o := obstruct(KindPort, "%s", p)
		o.port = p.Port
		out = append(out, o)
	}
	return out
}

func ofWire(f facts) []obstacle {
	if f.newsErr != nil {
		return []obstacle{obstruct(KindSilent, "the kernel's news could not be read: %v", f.newsErr)}
	}
	if f.wire == nil {
		return []obstacle{obstruct(KindSilent, "the witnesses were not asked")}
	}
	return onWire(*f.wire)
}

// onWire lists which witnesses see an address, and which cannot answer.
func onWire(a census.Answer) (out []obstacle) {
	for _, s := range a.Seen {
		o := obstruct(KindSighting, "the %s witness sees %s%s", s.Witness, s.Addr, s.Where())
		o.witness = s.Witness
		out = append(out, o)
	}
	for _, s := range a.Silent {
		o := obstruct(KindSilent, "the %s witness cannot answer: %s", s.Witness, s.Reason)
		o.witness = s.Witness
		out = append(out, o)
	}
	return out
}

// KeptByOwner says in a sentence why a sandbox is kept, by what its owner answered; ""
// when it is not: only a plain "gone" ends it.
func KeptByOwner(sandbox string, v Verdict, err error) string {
	switch {
	case err != nil:
		return fmt.Sprintf("its owner could not be asked about %s: %v", sandbox, err)
	case v == Valid:
		return fmt.Sprintf("its owner says that %s is valid", sandbox)
	case v != Gone:
		return fmt.Sprintf("its owner gives no answer about %s that can be understood", sandbox)
	}
	return ""
}

func ofOwner(sandbox string, v Verdict, err error) []obstacle {
	if why := KeptByOwner(sandbox, v, err); why != "" {
		return []obstacle{obstruct(KindOwner, "%s", why)}
	}
	return nil
}

// Reasons of changes that the watchdog makes. Those of a quarantine are
// exported for metrics, which count addresses that another uses.
const (
	reasonConfirmed = "removal_confirmed"
	reasonRemoved   = "removed"           // without a call of Release
	ReasonStill     = "still_on_the_wire" // longer than ReleasingMax
	// By another's container, or by frames of another; or by a record without a task that carries the sandbox's name
	// alone. Anyone who may write records can make such a record, so no release waits for its end.
	ReasonClaimed = "claimed_by_another"
)

// quarantineReason says for what reason a released address is to be quarantined; "": it is not. Its own
// workload has to be gone, ports included. Then it is quarantined at once if another's container claims it,
// or if claimed: all that is seen of it is what others claim, and no release waits for that. For
// anything else on the wire it is quarantined after the longest wait.
func quarantineReason(found []obstacle, strangers []census.Sighting, claimed bool, waited, most time.Duration) string {
	seen := false
	for _, o := range found {
		if o.Kind != KindSighting && o.Kind != KindSilent {
			return ""
		}
		seen = seen || o.Kind == KindSighting
	}
	byContainer := func(s census.Sighting) bool { return s.Witness == census.Runtime }
	switch {
	case !seen:
		return ""
	case claimed, slices.ContainsFunc(strangers, byContainer):
		return ReasonClaimed
	case waited >= most:
		return ReasonStill
	}
	return ""
}
