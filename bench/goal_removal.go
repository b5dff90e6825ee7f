package main

import (
	"context"
	"fmt"
	"time"

	"github.com/ipamd/ipamd/api"
)

// soon is the most that half of the removals may take to be confirmed.
const soon = 20 * time.Millisecond

// The ways in which the end of a sandbox is told, or not. Its container's
// record is the last of it to go.
const (
	releasedBefore = iota
	notReleased
	releasedAfter // and the release waits
	ways
)

// removal is goal 12: how long after containerd has deleted a container's
// record, which was all that was left of the sandbox, its address is seen to
// cool by who asks again and again, R apart. The containers run, in network
// namespaces that are ports of the bridge, until shortly before.
//
// A way's p99 stands beside the p99 of the Deletes that began it, of as many
// samples. There is one of all rounds, for one of each would want a hundred
// sandboxes a way and round to run, which takes minutes. A round's own is beside
// it, with the same limit: of so few sandboxes it is the longest.
func removal(ctx context.Context, b *bench) (rows []row, err error) {
	r, err := b.startRunner(ctx, "removal")
	if err != nil {
		return nil, err
	}
	defer func() { err = first(err, r.stop()) }()
	if _, err := b.removals(ctx, r, warmBoxes, nil); err != nil {
		return nil, err
	}
	var (
		told  = [ways]string{"released before", "never released", "released after, with wait"}
		half  [ways]row
		worst [ways]row
		all   removed
		files sample
	)
	for w := range ways {
		half[w] = row{goal: 12, what: told[w] + ": Delete to cooling, p50 / 20 ms", most: 1}
		worst[w] = row{goal: 12, what: told[w] + fmt.Sprintf(": a round's p99, the longest of its %d / (its longest Delete + 10 F)", b.boxes), most: 1}
	}
	scale := row{goal: 12, what: "Delete itself, p50 / F"}
	err = b.each(ctx, func() error {
		var f sample
		got, err := b.removals(ctx, r, b.boxes, &f)
		if err != nil {
			return err
		}
		var deletes sample
		for w := range ways {
			half[w].add(got.lags[w].p50(), soon)
			worst[w].add(got.lags[w].at(1), got.deletes[w].at(1)+10*f.p50())
			all.lags[w] = append(all.lags[w], got.lags[w]...)
			all.deletes[w] = append(all.deletes[w], got.deletes[w]...)
			deletes = append(deletes, got.deletes[w]...)
		}
		scale.add(deletes.p50(), f.p50())
		files = append(files, f...)
		return nil
	})
	for w := range ways {
		if len(all.lags[w]) == 0 {
			continue
		}
		tail := row{goal: 12, what: told[w] + fmt.Sprintf(": p99 of all %d / (their Deletes' p99 + 10 F)", len(all.lags[w])), most: 1}
		tail.add(all.lags[w].p99(), all.deletes[w].p99()+10*files.p50())
		rows = append(rows, half[w], tail, worst[w])
	}
	return append(rows, scale), err
}

// warmBoxes is how many sandboxes a way are removed before anything is noted.
const warmBoxes = 2

// removed is what removals took, by way.
type removed struct{ lags, deletes [ways]sample }

// removals makes n sandboxes a way and removes them, the ways and the yardstick
// by turns.
func (b *bench) removals(ctx context.Context, r *runner, n int, files *sample) (out removed, err error) {
	boxes, err := r.boxes(ctx, ways*n, true)
	if err != nil {
		return out, err
	}
	records, err := r.strip(ctx, boxes)
	if err != nil {
		return out, err
	}
	for i, x := range boxes {
		if i%ways != releasedBefore {
			continue
		}
		reply, err := r.client.Release(ctx, x.lease.ID, api.ReleaseRequest{})
		if err == nil && reply.Lease.State != api.Releasing {
			err = fmt.Errorf("%s is %s while its container is there", x.lease.Address, reply.Lease.State)
		}
		if err != nil {
			return out, err
		}
	}
	for i, x := range boxes {
		way := i % ways
		if err := out.deletes[way].timed(func() error { return records[i].Delete(inDefault(ctx)) }); err != nil {
			return out, err
		}
		if err := out.lags[way].timed(func() error { return r.cools(ctx, x, way == releasedAfter) }); err != nil {
			return out, err
		}
		if files != nil {
			if err := files.repeat(turn, b.file.write); err != nil {
				return out, err
			}
		}
	}
	return out, nil
}

// cools returns when the address of a sandbox cools.
func (r *runner) cools(ctx context.Context, x *box, release bool) error {
	if release {
		reply, err := r.client.Release(ctx, x.lease.ID, api.ReleaseRequest{Wait: api.Lasting(patience)})
		if err == nil && reply.Lease.State != api.Cooling {
			err = fmt.Errorf("%s is %s: %v", x.lease.Address, reply.Lease.State, reply.Blockers)
		}
		return err
	}
	return until(x.lease.Address+" cools", patience, func() (bool, error) {
		now, err := r.client.Lease(ctx, x.lease.ID)
		return err == nil && now.Lease.State == api.Cooling, err
	})
}
