package main

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/ipamd/ipamd/api"
)

// probeWindow is how long the wire must have been silent since a question for
// that to count as an answer.
const probeWindow = 50 * time.Millisecond

// probeAhead is how many of the next addresses are asked for ahead of demand, by
// default.
const probeAhead = 16

// vetted is goal 11: how long before an answer its address was asked for on
// the wire, as a port of the bridge hears it, unless the answer says that it
// was given unprobed; and how many say that.
func vetted(ctx context.Context, b *bench) (rows []row, err error) {
	d, err := b.startDaemon(ctx, "vetted")
	if err != nil {
		return nil, err
	}
	defer func() { err = first(err, d.stop()) }()
	heard, err := listen(d.ports.spaces[0])
	if err != nil {
		return nil, err
	}
	defer func() { err = first(err, heard.close()) }()
	// What was asked for before there was a listener is given first, to several
	// times as many callers as are probed ahead; or it was passed over, and comes
	// later. It is below what they were given, and is no witness of anything.
	warm, err := d.given(ctx, 4*probeAhead, 0)
	if err != nil {
		return nil, err
	}
	var unheard netip.Addr // and all below it
	for _, g := range warm {
		if unheard.Less(g.addr) {
			unheard = g.addr
		}
	}
	last := make(map[netip.Addr]time.Time)
	for _, callers := range []int{1, b.callers} {
		of := fmt.Sprintf("given to %d at once: ", callers)
		window := row{goal: 11, what: of + "the shortest silence on the wire before an address / 50 ms", least: 1}
		worst := row{goal: 11, what: "the same, the shortest of all rounds / 50 ms", least: 1}
		share := row{goal: 11, what: of + "unprobed, which the answer says / all", unit: "addresses"}
		var shortest sample
		err := b.each(ctx, func() error {
			before, err := droppedFrames()
			if err != nil {
				return err
			}
			given, err := d.given(ctx, callers, b.crowd)
			if err != nil {
				return err
			}
			given = slices.DeleteFunc(given, func(g gift) bool { return !unheard.Less(g.addr) })
			if len(given) == 0 {
				return fmt.Errorf("nobody was given an address above %s", unheard)
			}
			asked, err := heard.asked()
			if err != nil {
				return err
			}
			least, unprobed := silences(given, asked, last)
			if dropped, err := droppedFrames(); err != nil || least == 0 && unprobed < len(given) && dropped > before {
				return first(err, fmt.Errorf("no question for an address was heard, and the kernel dropped %d frames meanwhile, whosever they were", dropped-before))
			}
			window.add(least, probeWindow)
			shortest = append(shortest, least)
			share.round(float64(unprobed), float64(len(given)))
			return nil
		})
		if len(shortest) > 0 {
			worst.add(shortest.at(0), probeWindow)
		}
		rows = append(rows, window, worst, share)
		if err != nil {
			return rows, err
		}
	}
	return rows, nil
}

// A gift is an address in an answer.
type gift struct {
	addr     netip.Addr
	at       time.Time
	unprobed bool // the answer says so
}

// given lets callers allocate and release, and returns what they got, in
// order.
func (d *daemon) given(ctx context.Context, callers int, long time.Duration) (all []gift, err error) {
	var mu sync.Mutex
	_, err = crowd(ctx, callers, long, func(int) func(context.Context) error {
		c := d.caller()
		return func(ctx context.Context) error {
			c.calls++
			reply, err := c.client.Allocate(ctx, api.AllocateRequest{Sandbox: fmt.Sprintf("%s-%d", c.name, c.calls)})
			if err != nil {
				return err
			}
			at := time.Now()
			c.held = &reply.Leases[0]
			addr, err := netip.ParseAddr(c.held.Address)
			if err != nil {
				return err
			}
			mu.Lock()
			all = append(all, gift{addr, at, len(reply.Unprobed) > 0})
			mu.Unlock()
			return c.release(ctx)
		}
	})
	slices.SortFunc(all, func(x, y gift) int { return x.at.Compare(y.at) })
	return all, err
}

// silences returns the shortest time between the first question for an address
// since it was given last and the answer that gives it, where that does not
// call it unprobed; 0 when nobody asked. unprobed counts the others. last is when
// each address was given, and is kept from one round to the next.
func silences(given []gift, asked map[netip.Addr][]time.Time, last map[netip.Addr]time.Time) (least time.Duration, unprobed int) {
	least = -1
	for _, g := range given {
		silence := time.Duration(0)
		for _, at := range asked[g.addr] {
			if at.After(last[g.addr]) && at.Before(g.at) {
				silence = g.at.Sub(at)
				break
			}
		}
		last[g.addr] = g.at
		switch {
		case g.unprobed:
			unprobed++
		case least < 0 || silence < least:
			least = silence
		}
	}
	return max(least, 0), unprobed
}
