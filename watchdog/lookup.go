package watchdog

import (
	"context"
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/workload"
)

// look asks the runtime, by id, about the containers that a lease records and about others that were once
// seen to belong to it, and the kernel about its ports. It does not ask about containers in reassigned,
// which are another lease's by now.
func (w *Watchdog) look(ctx context.Context, l *ipam.Lease, others []Container, reassigned map[Container]bool, x *workload.Leases) facts {
	f := facts{runtime: w.cfg.Runtime != nil, reassigned: reassigned}
	if f.runtime {
		f.looks = make(map[Container]lookedUp)
		for _, c := range slices.Concat(l.Containers, others) {
			if _, asked := f.looks[c]; !asked && !reassigned[c] {
				f.looks[c] = w.lookAt(ctx, c)
			}
			if f.looks[c].Found && f.seen == nil {
				// Containers without an address are on the board under none.
				f.seen = append(workload.About(w.cfg.Board, l).Seen, w.cfg.Board.About(netip.Addr{}).Seen...)
			}
		}
	}
	host, netns := x.Plumbing(l)
	inode := x.LastKnown(l, w.cfg.Now().BootID).Inode
	if f.plugged, f.portErr = w.cfg.Kernel.Plugged(ctx, host, w.plumbed.since(l), netns, inode); len(f.plugged) == 0 && f.portErr == nil {
		f.trace, f.portErr = trace(ctx, &w.cfg, l, x)
	}
	f.ports = true
	return f
}

// trace asks the kernel what is left of a lease's sandbox.
func trace(ctx context.Context, cfg *Config, l *ipam.Lease, x *workload.Leases) (workload.Trace, error) {
	at := x.LastKnown(l, cfg.Now().BootID)
	left, err := cfg.Kernel.Remains(ctx, at, l.Covers)
	return workload.Trace{Lease: l, At: at, Remains: left, Leases: x}, err
}

const (
	// byNameGrace is how long a release waits for records without a task that carry the
	// sandbox's name alone and were made no longer than that before it: one of them may
	// be a start under way, which the release overtook. It is one grace a release: records
	// that are made again and again do not prolong it.
	byNameGrace = 5 * time.Second
	// byNameAbreast is how many of them are asked about at once.
	byNameAbreast = 8
)

// grace is what is left of byNameGrace for a release.
func (w *Watchdog) grace(l *ipam.Lease) time.Duration {
	return byNameGrace - w.cfg.Now().Since(l.Since)
}

// askByName looks up, by id, an attempt's containers that are its lease's by name alone, and notes those that block no release: they have no task,
// and were made too long before the release to be a start under way, or the grace is over.
func (w *Watchdog) askByName(ctx context.Context, a *attempt) {
	a.graceOver = w.grace(a.lease) <= 0
	oldest := a.lease.Since.Wall.Add(-byNameGrace)
	a.facts.blockNothing = make(map[Container]bool)
	var mu sync.Mutex
	var all errgroup.Group // waited for below
	all.SetLimit(byNameAbreast)
	for _, c := range a.byName {
		all.Go(func() error {
			look := w.lookAt(ctx, c)
			idle := false
			if look.Found {
				made, err := w.cfg.Runtime.Idle(ctx, c)
				idle = err == nil && !made.IsZero() && (a.graceOver || made.Before(oldest))
			}
			mu.Lock()
			defer mu.Unlock()
			a.facts.looks[c], a.facts.blockNothing[c] = look, idle
			return nil
		})
	}
	_ = all.Wait() // none of them returns one
}

// ignores reports whether a sighting blocks no release: it is of a record without a task that carries
// the sandbox's name alone, and askByName has noted it, or the grace is over. Its address is quarantined all the
// same, with [ReasonClaimed]: a container may be started from the record.
func (a *attempt) ignores(s census.Sighting) bool {
	c := Container{Namespace: s.Namespace, ID: s.Container}
	return s.Witness == census.Runtime && s.Task == "" && s.Note == "" && s.LeaseID != a.lease.ID &&
		!slices.Contains(a.lease.Containers, c) && (a.facts.blockNothing[c] || a.graceOver)
}

func (w *Watchdog) lookAt(ctx context.Context, c Container) lookedUp {
	if err := ctx.Err(); err != nil {
		return lookedUp{err: err}
	}
	got, err := w.cfg.Runtime.Look(ctx, c)
	return lookedUp{got, err}
}

// add adds to the facts which containers belong to the lease by the
// runtime's list, and what the witnesses say about its address.
func (f *facts) add(l *ipam.Lease, x *workload.Leases, in inventory, wire census.Answer) {
	f.listed, f.listErr, f.newsErr = in.listed, in.listErr, census.ErrorAbout(l.Addr, in.newsErr)
	f.list = in.there.of(l, x, false)
	f.wire = &wire
}

// besideOf says what has the lease's address in a namespace that no witness reads. It is asked after the
// board: what is unplugged in between is found by the one or by the other.
func besideOf(ctx context.Context, kernel Kernel, l *ipam.Lease) []obstacle {
	at, err := kernel.Beside(ctx, census.Sought{Has: l.Covers, Sandbox: true, MAC: l.MAC})
	for _, says := range at {
		return []obstacle{obstruct(KindSighting, "%s", says)}
	}
	if err != nil {
		return []obstacle{obstruct(KindSilent, "what is beside the bridges could not be read: %v", err)}
	}
	return nil
}

// askOwner asks whether the owner keeps the sandbox; nothing when there is no
// owner to ask.
func (w *Watchdog) askOwner(ctx context.Context, sandbox string) []obstacle {
	if w.cfg.Owner == nil {
		return nil
	}
	v, err := w.ownerAsk.Look(ctx, w.cfg.Owner, sandbox)
	return ofOwner(sandbox, v, err)
}
