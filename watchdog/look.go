package watchdog

import (
	"cmp"
	"context"
	"net/netip"
	"strings"
	"time"

	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/netdb"
	"github.com/ipamd/ipamd/workload"
)

func (c Container) compare(o Container) int {
	return cmp.Or(strings.Compare(c.Namespace, o.Namespace), strings.Compare(c.ID, o.ID))
}

// look asks the runtime, by id, about the containers that a lease records and
// about others that were once seen to belong to it, and the kernel about its
// ports. It does not ask about what is another lease's by now.
func (w *Watchdog) look(ctx context.Context, l *netdb.Lease, others []Container, lost map[Container]bool, x *workload.Leases) facts {
	f := facts{runtime: w.cfg.Runtime != nil, lost: lost}
	if f.runtime {
		f.looks = make(map[Container]answer)
		for _, c := range append(recorded(l), others...) {
			if _, asked := f.looks[c]; !asked && !lost[c] {
				f.looks[c] = w.lookAt(ctx, c)
			}
			if f.looks[c].Found && f.seen == nil {
				f.seen = append(w.cfg.Board.About(l.Addr).Seen, w.cfg.Board.About(netip.Addr{}).Seen...)
			}
		}
	}
	host, netns := x.Plumbing(l)
	f.plugged, f.portErr = w.cfg.Ports.Plugged(ctx, host, w.plumbed.since(l), netns)
	f.ports = true
	return f
}

// claimGrace is how long a record without a task may be a sandbox's own container
// between its creation and its start.
const claimGrace = 2 * time.Minute

// idle returns those of an attempt's claims that block no release: without a task, and
// beyond claimGrace since the record was made or since the release. The time since the
// release keeps records that are made again and again from blocking it for ever.
func (w *Watchdog) idle(ctx context.Context, a *attempt) map[Container]bool {
	out := make(map[Container]bool)
	for _, c := range a.claims {
		if !a.facts.looks[c].Found {
			continue
		}
		made, err := w.cfg.Runtime.Idle(ctx, c)
		if now := w.cfg.Now(); err == nil && !made.IsZero() && (now.Wall.Sub(made) >= claimGrace || now.Since(a.lease.Since) >= claimGrace) {
			out[c] = true
		}
	}
	return out
}

func (w *Watchdog) lookAt(ctx context.Context, c Container) answer {
	if err := ctx.Err(); err != nil {
		return answer{err: err}
	}
	got, err := w.cfg.Runtime.Look(ctx, c)
	return answer{got, err}
}

// add adds to the facts which containers belong to the lease by the
// runtime's list, and what the witnesses say about its address.
func (f *facts) add(l *netdb.Lease, x *workload.Leases, in inventory, wire census.Answer) {
	f.listed, f.listErr, f.newsErr = in.listed, in.listErr, in.newsErr
	f.list = in.there.of(l, x, false)
	f.wire = &wire
}

// askOwner tells whether the owner keeps the sandbox; nothing when there is no
// owner to ask.
func (w *Watchdog) askOwner(ctx context.Context, sandbox string) []obstacle {
	if w.cfg.Owner == nil {
		return nil
	}
	v, err := w.rest.look(ctx, w.cfg.Owner, sandbox)
	return ofOwner(sandbox, v, err)
}
