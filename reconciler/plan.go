package reconciler

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/workload"
)

// policy is what an operator decides about plans, and what is known of
// addresses.
type policy struct {
	place              func(netip.Addr) ipam.Place
	unrecordedPlumbing func(*ipam.Lease) ipam.Binding // nil: none of any
	sleep              func(id string) *ipam.Sleep    // nil: none of any
	runtime            bool                           // a runtime witness is expected
	misses             int
	age                time.Duration
	quarantine         time.Duration
	maxReleases        float64
	leastReleases      int
}

// A view is all that a plan is made of. The book was read before the census. Its method index has to be
// called first. Its other methods are the rows of one table of decisions, each in the file of its subject;
// none changes what was read.
type view struct {
	policy
	book    []*ipam.Lease // in the order of the addresses
	census  census.Census
	unasked map[netip.Addr]bool // quarantined addresses that should have been probed, and were not
	gone    map[string]bool     // leases whose every recorded container answered a look-up not to be there
	changed error               // why the runtime's word that something is gone proves nothing
	whole   bool                // kernel and runtime were read anew for this census
	now     ipam.Stamp
	proof

	// What index derives from book and census.
	ids        map[string]netip.Addr    // of the rows
	ports      map[string][]*ipam.Lease // which leases record a host interface
	spaces     map[string][]*ipam.Lease // which record the path of a namespace
	leases     *workload.Leases
	links      workload.Recorded
	containers *workload.Containers[census.Sighting]
}

// memory is what passes observe over time. It can be lost at any line: then
// what needs time needs it again.
type memory struct {
	unseen   map[string]unseen  // by the id of a quarantined lease
	missed   map[string]misses  // by the id of a bound lease
	contests map[string]contest // by the id of a held lease
}

// A step is an action with all that it takes to do it.
type step struct {
	Action
	lease    *ipam.Lease // the row it was decided on; nil: there was none
	adopt    ipam.Adoption
	bind     ipam.Binding
	paused   bool // what is adopted or bound is paused
	soon     bool // done in vain it is worth another pass at once
	evidence json.RawMessage
}

// rev is that of the row that the step was decided on, 0 for none.
func (s *step) rev() int64 {
	if s.lease == nil {
		return 0
	}
	return s.lease.Rev
}

// A decision is what a pass has to do, and to remember.
type decision struct {
	memory
	steps    []step // in the order of the addresses, one an address
	findings []Finding
	absent   int
	held     *Held
	standing int           // held leases on which a conflict stands
	again    time.Duration // after it, time alone changes the decision; 0: it does not
}

// plan decides what makes book, wire and runtime agree. It is a pure function
// of the view and the memory.
//
// Nothing that could free an address is decided while a witness is silent, and
// none of the releases on a census that was not read anew for this pass.
func (v *view) plan(m memory, confirm bool) decision {
	d := decision{memory: memory{contests: make(map[string]contest)}}
	var overdue map[string]bool
	d.missed, d.absent, overdue = v.missed(m.missed)
	clears, unseen := unseenLong(v.book, v.census, v.whole, v.shows, v.unasked, m.unseen, v.quarantine, v.now)
	d.unseen = unseen
	for _, l := range clears {
		d.add(step{lease: l}, Clear, "no witness has seen it for %v", v.now.Since(unseen[l.ID].since).Round(time.Second))
	}
	rows := make(map[netip.Addr]bool, len(v.book))
	var prefixes []*ipam.Lease
	for _, l := range v.book {
		rows[l.Addr] = true
		if l.PrefixLen != 0 {
			prefixes = append(prefixes, l)
		}
		switch {
		case l.State == ipam.Cooling || l.State == ipam.Quarantined:
			v.unheld(&d, l.Addr, l)
		default:
			// That one of which nothing was ever seen is absent says nothing: it is the kernel's to say.
			late := overdue[l.ID] && (v.gone[l.ID] || !workload.NeverSeen(l, v.now.BootID))
			v.held(&d, l, late, m.contests)
		}
	}
	for addr := range v.census.Seen {
		if !rows[addr] && !inPrefix(prefixes, addr) {
			v.unheld(&d, addr, nil)
		}
	}
	slices.SortFunc(d.steps, func(a, b step) int { return a.Addr.Compare(b.Addr) })
	sortFindings(d.findings)
	v.brake(&d, confirm)
	return d
}

// add completes a step from its row.
func (d *decision) add(s step, kind, reason string, args ...any) {
	s.Kind, s.Reason, s.Result = kind, fmt.Sprintf(reason, args...), Planned
	if s.lease != nil {
		s.Addr, s.LeaseID = s.lease.Addr, s.lease.ID
		s.Sandbox = cmp.Or(s.Sandbox, s.lease.Sandbox)
	}
	d.steps = append(d.steps, s)
}

// unheld decides about an address that is not held: it has no row, or one
// that cools or is quarantined.
func (v *view) unheld(d *decision, addr netip.Addr, row *ipam.Lease) {
	seen := v.census.Seen[addr]
	if row != nil {
		seen = workload.SeenOf(v.census, row)
	}
	if len(seen) == 0 || !v.place(addr).Usable {
		return
	}
	if row != nil && row.PrefixLen != 0 {
		v.unheldPrefix(d, row, seen)
		return
	}
	quarantined := row != nil && row.State == ipam.Quarantined
	claims := claimants(seen)
	s := step{Action: Action{Addr: addr}, lease: row, evidence: evidence(seen)}
	if len(claims) > 1 {
		d.findings = append(d.findings, twoClaimants(addr, "", claims))
		claims, seen = v.rightful(claims, seen)
	}
	switch {
	case len(claims) > 1:
		if !quarantined {
			d.add(s, Quarantine, "%s and %s both claim it", claims[0].name(), claims[1].name())
		}
	case len(claims) == 1 && claims[0].sandbox != "":
		// The order of the cases counts: a workload for which no lease can be made is never adopted, whatever
		// proves it; and a claim that nothing but labels makes is reported as such, also where the row speaks
		// against it.
		c, proven := v.proven(claims[0], addr, seen)
		held := quarantined && heldBack(row)
		may := !held && c.mayHave(v, row, seen)
		switch {
		case c.unfit() != "":
			v.unfit(d, s, c, seen)
			return
		case !proven && (may || quarantined && !held):
			d.findings = append(d.findings, unproven(addr, row, c))
			if !quarantined {
				d.add(s, Quarantine, "%s claims it, and nothing but its labels says so", c.name())
			}
			return
		case !may:
			d.findings = append(d.findings, unleased(v, addr, row, c, seen))
			return
		}
		s.Sandbox = c.sandbox
		id := c.leaseID()
		if at, taken := v.ids[id]; taken && at != addr {
			id = "" // it names the lease of another address
		}
		s.adopt = ipam.Adoption{Addr: addr, ID: id, Sandbox: c.sandbox, UID: c.uid,
			Binding: v.binding(c.containers, seen), Evidence: s.evidence}
		as := &ipam.Lease{ID: id, Addr: addr, Sandbox: c.sandbox, UID: c.uid, Containers: s.adopt.Containers, HostInterface: s.adopt.HostInterface}
		s.paused = allPaused(v.backed(as, v.of(as)))
		s.adopt.Rev = s.rev()
		d.add(s, Adopt, "%s lives with it and holds no lease of it", c.name())
	case len(claims) == 1 && claims[0].unfit() != "":
		v.unfit(d, s, claims[0], seen)
	case !quarantined:
		says := fmt.Sprintf("the %s witness sees it%s", seen[0].Witness, seen[0].Where())
		if seen[0].Port == "" && seen[0].Note != "" { // beside the bridges
			says = seen[0].Note
		}
		d.add(s, Quarantine, "%s, and no lease explains it", says)
	}
}

// unfit decides about an address that a workload claims for which no lease can be made.
func (v *view) unfit(d *decision, s step, c claimant, seen []census.Sighting) {
	d.findings = append(d.findings, unleased(v, s.Addr, s.lease, c, seen))
	if s.lease == nil || s.lease.State != ipam.Quarantined {
		d.add(s, Quarantine, "%s claims it, and no lease can be made for it", c.containers[0].Container)
	}
}

// held decides about a lease that is held, or being released.
func (v *view) held(d *decision, l *ipam.Lease, overdue bool, contests map[string]contest) {
	if done := v.conflict(d, l, contests); done {
		return
	}
	if f, found := v.misbound(l); found {
		d.findings = append(d.findings, f)
	} else if f, found := v.stray(l); found {
		d.findings = append(d.findings, f)
		return
	}
	own := v.of(l)
	backed := v.backed(l, own)
	s := step{lease: l}
	switch l.State {
	case ipam.Reserved:
		if live := bindable(l, backed); anyTask(live, taskRunning, taskPaused, taskStopped) {
			s.bind, s.paused = v.binding(live, workload.SeenOf(v.census, l)), allPaused(backed)
			d.add(s, Bind, "container %s/%s runs", s.bind.Containers[0].Namespace, s.bind.Containers[0].ID)
		} else if v.whole && v.census.CompleteAbout(l.Addr) && v.pastDeadline(l) && !v.awaited(l, own) && len(workload.SeenOf(v.census, l)) == 0 {
			d.add(s, Expire, "it was not bound within %v, and no witness sees it", l.BindWithin)
		}
	case ipam.Bound:
		switch {
		case overdue:
			m := d.missed[l.ID]
			d.add(s, Reap, "no container and no witness has shown it for %v", v.now.Since(m.since).Round(time.Second))
		case allPaused(backed) && !v.silent(census.Runtime) && (v.whole || v.newer(l, latest(backed)) || v.now.Since(l.Since) >= shortly):
			// Of a moment ago the tasks may have been seen before they were resumed. What stands still for longer was frozen
			// as a wake or a resume was recorded, and nothing would wake it.
			d.add(s, Pause, "the runtime has paused it")
		default:
			if s.bind.Containers = unrecorded(l, backed); len(s.bind.Containers) > 0 {
				d.add(s, Bind, "container %s/%s runs", s.bind.Containers[0].Namespace, s.bind.Containers[0].ID)
			} else {
				v.recordPlumbing(d, s)
			}
		}
	case ipam.Paused:
		if overdue {
			d.add(s, Reap, "it was frozen before the machine booted, and nothing has shown it for %v", v.now.Since(d.missed[l.ID].since).Round(time.Second))
		} else if v.resumed(l, backed) {
			s.bind.Containers = unrecorded(l, backed)
			d.add(s, Resume, "the runtime runs it")
		} else if mode := v.stopping(l); mode != "" && v.stopped(l, own, backed, mode) {
			d.add(s, Still, "its tasks stand still, or are gone")
		} else if l.Plug.Boot == "" || l.Plug.OfBoot(v.now.BootID) {
			v.recordPlumbing(d, s)
		} // else its port ended with the boot, and what has its name now is another's
	}
}

// recordPlumbing binds a lease to the link and the namespace that its names stand for, where the book does not
// have these yet: a later link of the same name is then known to be another. It does not where the leases of two
// sandboxes, or of two incarnations of one, record the name, which says nothing then about whose link it is. Of a
// lease that names no port it records behind which one a witness sees it.
func (v *view) recordPlumbing(d *decision, s step) {
	if link, news := v.inPlace(s.lease); news {
		s.bind.Seen, s.bind.Plug.Behind = true, link
		d.add(s, Bind, "a witness sees it on its bridge")
		return
	}
	another := func(o *ipam.Lease) bool { return o.ID != s.lease.ID && !workload.OtherInterfaceOrFamily(o, s.lease) }
	if v.unrecordedPlumbing == nil || s.lease.HostInterface != "" && slices.ContainsFunc(v.ports[s.lease.HostInterface], another) {
		return
	}
	s.bind = v.unrecordedPlumbing(s.lease)
	s.bind.Seen = s.bind.Seen && !v.silent(census.Netns) // else which ports there are is what was known before
	if s.bind.Netns != "" && slices.ContainsFunc(v.spaces[s.bind.Netns], another) {
		s.bind.Netns = "" // it may be another's by now
	}
	switch {
	case s.bind.Plug.Unsaid != 0 && (s.bind.HostInterface != "" || s.bind.Netns != ""):
		s.soon = true
		d.add(s, Bind, "the kernel did not say what its port and its namespace are when it was bound")
	case s.bind.HostInterface != "":
		d.add(s, Bind, "its port %s is there", s.bind.HostInterface)
	}
}

// inPlace returns behind which link a witness sees the workload of a lease without containers; 0 of a lease
// that names a port. news is true where the book does not have that yet, or has not recorded that any witness
// has seen the workload. A sighting behind a port of another lease does not count: there is that lease's
// sandbox, which may have taken the address and the MAC. Behind a port of which no lease and no container says
// whose it is, the MAC alone counts if the lease names nothing else, as one that was bound by its MAC.
func (v *view) inPlace(l *ipam.Lease) (link int, news bool) {
	if len(l.Containers) > 0 {
		return 0, false
	}
	behind := l.Plug.Behind
	if !l.Plug.OfBoot(v.now.BootID) {
		behind = 0
	}
	unseen := workload.NeverSeen(l, v.now.BootID)
	for _, s := range workload.SeenOf(v.census, l) {
		link := 0
		if l.HostInterface == "" {
			link = s.Index
		}
		if (unseen || link != 0 && link != behind) && v.leases.SeenInPlace(l, s) && !anothersPort(v, l, s) {
			return link, true
		}
	}
	return 0, false
}

// anothersPort reports that a sighting is behind the port of another sandbox's lease, or one that may be, or where a
// container of one lives, as far as homes are known. In the namespace that the lease records it is not, whatever others record of
// the link, or that has ended, and its inode is used again.
func anothersPort(v *view, l *ipam.Lease, s census.Sighting) bool {
	switch {
	case s.Inode != 0 && s.Inode == l.Plug.Inode && l.Plug.OfBoot(v.now.BootID):
		return false
	case s.Index != 0 && v.links.Whose(l, s.Index, s.Port) != workload.Own:
		return true
	}
	return slices.ContainsFunc(v.book, func(o *ipam.Lease) bool {
		return o.UID != l.UID && o.State.Open() && (o.HostInterface != "" && s.Port == o.HostInterface || len(v.at(v.of(o), s)) > 0)
	})
}

// shortly is how long a runtime may take to pause what it has said is paused, where it has not said
// how, and to report that tasks were resumed.
const shortly = time.Minute

// resumed reports that a workload runs whose lease is paused. A client that pauses a lease
// may do so before the runtime has done it, so that a task runs as before is no news: a freeze may
// take a moment and a checkpoint minutes, and a lease that is bound meanwhile loses its address
// with its tasks. What counts is a task that was resumed or made since, or that stood still since. Of one that is to hibernate
// only that it was made: a checkpoint may resume the task that it then ends. A client that has not
// said how it pauses has a moment for it; after that a reading made anew overrules it.
func (v *view) resumed(l *ipam.Lease, own []census.Sighting) bool {
	running := slices.DeleteFunc(slices.Clone(own), func(s census.Sighting) bool { return s.Task != taskRunning })
	if len(running) == 0 || v.silent(census.Runtime) {
		return false
	}
	mode := v.stopping(l)
	if v.now.Rebooted(l.Since) || slices.ContainsFunc(running, func(s census.Sighting) bool {
		return !s.Began.IsZero() && v.newer(l, s.Began) || mode != ipam.Hibernate &&
			(s.Resumed && v.newer(l, s.TaskAt) || !s.StoodAt.IsZero() && v.newer(l, s.StoodAt))
	}) {
		return true
	}
	if mode != "" || v.mode(l) == "" && l.Reason != ipam.RuntimePaused && v.now.Since(l.Since) < shortly {
		return false
	}
	return v.whole || v.newer(l, latest(running))
}

// newer reports whether a moment is after the one at which a lease came into its state. The
// wall clock may have been set in between, so what has passed since is compared.
func (v *view) newer(l *ipam.Lease, at time.Time) bool {
	return v.now.Wall.Sub(at) < v.now.Since(l.Since)
}

// mode is how a lease's sandbox is paused, "" where nobody has said it, also of one that was woken.
func (v *view) mode(l *ipam.Lease) ipam.SleepMode {
	if s := v.slept(l); s != nil && !s.Plain {
		return s.Mode
	}
	return ""
}

func (v *view) slept(l *ipam.Lease) *ipam.Sleep {
	if v.sleep == nil {
		return nil
	}
	return v.sleep(l.ID)
}

// stopping is how a paused lease's owner has said to pause it and does so itself, while it has not
// been seen to have done it; else "". What ipamd freezes itself it asks about.
func (v *view) stopping(l *ipam.Lease) ipam.SleepMode {
	if s := v.slept(l); s != nil && !s.Do && !s.Still && !s.Plain {
		return s.Mode
	}
	return ""
}

// stopped reports that the tasks of a paused lease stand still, or are gone; of one that
// hibernates they are gone. A task of which it is not known what it does, or whether it is the
// lease's own, may run.
func (v *view) stopped(l *ipam.Lease, own, backed []census.Sighting, mode ipam.SleepMode) bool {
	if !v.runtime || v.silent(census.Runtime) || v.changed != nil {
		return false
	}
	return !slices.ContainsFunc(own, func(s census.Sighting) bool {
		if _, known := v.homes[s.PID]; !slices.Contains(backed, s) && (known || len(l.Containers) > 0) {
			return false // by a label alone
		}
		switch s.Task {
		case taskRunning:
			return true
		case taskPaused:
			return mode == ipam.Hibernate
		}
		return s.Task == "" && s.Note != ""
	})
}

func (v *view) silent(w census.Witness) bool {
	return slices.ContainsFunc(v.census.Silent, func(s census.Silence) bool { return s.Witness == w })
}

// awaited reports whether one of a reserved lease's containers may be yet to
// use it.
func (v *view) awaited(l *ipam.Lease, own []census.Sighting) bool {
	return slices.ContainsFunc(own, func(s census.Sighting) bool { return v.leases.AboutToUse(l, workload.Seen(s)) })
}

func (v *view) pastDeadline(l *ipam.Lease) bool {
	return l.State == ipam.Reserved && l.Stuck(v.now)
}

// bindable returns those of a lease's containers that name the address or the
// lease itself.
func bindable(l *ipam.Lease, own []census.Sighting) []census.Sighting {
	return slices.DeleteFunc(slices.Clone(own), func(s census.Sighting) bool { return s.Addr != l.Addr && s.LeaseID != l.ID })
}

// unrecorded returns the containers of a workload that runs, for a lease that
// records none because its owner named the port alone: without them nothing
// shows that they are removed.
func unrecorded(l *ipam.Lease, own []census.Sighting) []ipam.Container {
	if live := bindable(l, own); len(l.Containers) == 0 && anyTask(live, taskRunning) {
		return containersOf(live)
	}
	return nil
}

// evidence is what the book keeps of sightings.
func evidence(seen []census.Sighting) json.RawMessage {
	b, err := json.Marshal(seen)
	if err != nil {
		panic(err) // sightings always marshal
	}
	return b
}
