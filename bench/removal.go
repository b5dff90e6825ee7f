package main

import (
	"fmt"
	"slices"

	"github.com/containerd/containerd/v2/pkg/namespaces"

	containerd "github.com/containerd/containerd/v2/client"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/internal/realtest"
)

// The ways in which the end of a sandbox is reported, or not. Its container's
// record is the last of it that is removed.
const (
	releasedBefore = iota
	notReleased
	releasedAfter // and the release waits
	ways
)

// removal is goal 12: how long after containerd has deleted a container's
// record, which was all that was left of the sandbox, its address is seen to
// cool by a caller that asks again and again. The containers run, in network
// namespaces that are ports of the bridge, until shortly before. A way's p99 is that of
// all its sandboxes, beside the p99 of the Deletes that began them: one ratio a run, for
// a hundred running sandboxes a way and round would take minutes each.
func removal(r *run) func() []ratio {
	n := r.runner()
	return func() (out []ratio) {
		var all [ways]timing
		var files sample
		n.removals(2, new([ways]timing), new(sample)) // warm
		for range r.rounds {
			n.removals(r.boxes, &all, &files)
		}
		for _, way := range all {
			out = append(out, took(way.undo.p50(), 20_000_000), took(way.undo.p99(), way.do.p99()+10*files.p50()))
		}
		return out
	}
}

// removals makes so many sandboxes a way and removes them, the ways and the yardstick F
// by turns. Of a timing, do is containerd's Delete, and undo is until the address cools.
func (n *runner) removals(count int, all *[ways]timing, files *sample) {
	boxes := n.boxes(ways*count, true)
	records := n.strip(boxes)
	for i, b := range boxes {
		if i%ways == releasedBefore {
			if reply := must(n.client.Release(n.ctx, b.lease.ID, api.ReleaseRequest{})); reply.Lease.State != api.Releasing {
				n.Fatalf("%s is %s while its container is there", b.lease.Address, reply.Lease.State)
			}
		}
	}
	for i, b := range boxes {
		way := i % ways
		check(
			all[way].do.time(func() error { return records[i].Delete(namespaces.WithNamespace(n.ctx, namespaces.Default)) }),
			all[way].undo.time(func() error { return n.cools(b, way == releasedAfter) }))
		*files = slices.Concat(*files, byTurns(turn, n.yardF())[0].do)
	}
}

// strip removes all of the sandboxes but the containers' records, as a runtime
// does before it deletes those, and waits until ipamd knows.
func (n *runner) strip(boxes []box) []containerd.Container {
	ctx := namespaces.WithNamespace(n.ctx, namespaces.Default)
	records := make([]containerd.Container, len(boxes))
	for i, b := range boxes {
		records[i] = must(n.ctrd.Client().LoadContainer(ctx, b.lease.Sandbox))
		must(must(records[i].Task(ctx, nil)).Delete(ctx, containerd.WithProcessKill))
		b.port.NS.Delete()
	}
	realtest.Eventually(n, patience, "only the runtime sees the sandboxes", func() bool {
		for _, b := range boxes {
			for _, w := range must(n.client.Whois(n.ctx, b.lease.Address)).Witnesses {
				if (w.Answer == "seen") != (w.Witness == "runtime") {
					return false
				}
			}
		}
		return must(n.client.Status(n.ctx)).Bridge.Ports == 0
	})
	return records
}

// cools returns when the address of a sandbox cools.
func (n *runner) cools(b box, release bool) error {
	if release {
		reply, err := n.client.Release(n.ctx, b.lease.ID, api.ReleaseRequest{Wait: api.Lasting(patience)})
		if err == nil && reply.Lease.State != api.Cooling {
			err = fmt.Errorf("%s is %s: %v", reply.Lease.Address, reply.Lease.State, reply.Blockers)
		}
		return err
	}
	for {
		now, err := n.client.Lease(n.ctx, b.lease.ID)
		if err != nil || now.Lease.State == api.Cooling {
			return err
		}
	}
}
