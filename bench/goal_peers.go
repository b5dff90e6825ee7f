package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

// peerPatience is how long a peer may take at one filling in a round, but for
// the call it is at. A peer that takes a
// second for a call is there to be told so, not to be measured to the percent.
const peerPatience = 150 * time.Millisecond

// A player is one of a match: ipamd or a peer, with a store of each filling.
type player struct {
	contestant
	version string
	// give times so many calls at a filling, and fewer when they take longer
	// than most.
	give func(ctx context.Context, fill, calls int, most time.Duration) (sample, error)
	// many has many callers call in one of the ways.
	many func(ctx context.Context, way string, limit int) (peerAnswer, error)

	half   [fillings]sample     // the p50 of each round
	rates  map[string][]float64 // calls a second, by way
	failed map[string]int
	grown  int // how many addresses many callers got and kept
}

// The ways of many callers, as bench/peers calls them, each with a store of
// its own that is empty at first: they allocate and keep what they get, or
// release each address before the next.
const (
	growing  = "grow"
	churning = "crowd"
)

// A round of many callers is as many addresses as they get in this time, and
// some a caller at the least, for the slow peers. Those that grow get no more
// than their share of what the store has, so that no round finds it full.
const (
	growth    = 3
	crowdLong = 250 * time.Millisecond
)

// least is how many addresses a round has of all callers.
func (m *match) least() int { return growth * m.callers }

// share is how many they may keep in a round.
func (m *match) share(c contestant) int {
	room := m.leases
	if c.room > 0 {
		room = min(room, c.room)
	}
	return max(m.least(), room/m.contests)
}

// A match is ipamd and its peers.
type match struct {
	*bench
	fills   [fillings]filling
	ours    *player
	theirs  []*player
	echoes  sample // R of each round
	closers []func() error
}

// besidePeers measures what others take for the same work, by turns with
// ipamd: a few calls of each, again and again, and many callers of each.
func besidePeers(ctx context.Context, b *bench) (rows []row, err error) {
	m := &match{bench: b, fills: b.fillings()}
	defer func() { err = first(err, m.close()) }()
	if m.ours, err = m.startOurs(ctx); err != nil {
		return nil, err
	}
	for _, c := range contestants() {
		p, err := m.start(ctx, c)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c.name, err)
		}
		m.theirs = append(m.theirs, p)
	}
	for range b.contests {
		if err := m.round(ctx); err != nil {
			return nil, err
		}
	}
	b.others = m.table()
	return m.rows(), nil
}

func (m *match) close() error {
	var errs []error
	for _, end := range m.closers {
		errs = append(errs, end())
	}
	return errors.Join(errs...)
}

// startOurs runs a daemon a store.
func (m *match) startOurs(ctx context.Context) (*player, error) {
	open := func(store string, f filling) (*daemon, *caller, error) {
		d, err := m.startDaemonIn(ctx, "beside-"+store, f.prefix, m.ports, "none", "/nowhere")
		if err != nil {
			return nil, nil, err
		}
		m.closers = append(m.closers, d.stop)
		if err := d.fill(ctx, f.taken, m.callers); err != nil {
			return nil, nil, fmt.Errorf("fill ipamd with %s: %w", f.name, err)
		}
		c := d.caller()
		return d, c, c.churn(ctx, turn, new(sample), new(sample)) // warm
	}
	var callers [fillings]*caller
	for i, f := range m.fills {
		var err error
		if _, callers[i], err = open(strconv.Itoa(i), f); err != nil {
			return nil, err
		}
	}
	crowds := make(map[string][]*caller)
	for _, way := range []string{growing, churning} {
		d, _, err := open(way, m.fills[fillNone])
		if err != nil {
			return nil, err
		}
		for range m.callers {
			crowds[way] = append(crowds[way], d.caller())
		}
	}
	return &player{
		contestant: contestant{title: "ipamd, over its socket", durable: "each answer"},
		rates:      make(map[string][]float64),
		failed:     make(map[string]int),
		give: func(ctx context.Context, fill, calls int, _ time.Duration) (took sample, err error) {
			return took, callers[fill].churn(ctx, calls, &took, new(sample))
		},
		many: func(ctx context.Context, way string, limit int) (peerAnswer, error) {
			return callMany(ctx, crowds[way], way == churning, m.least(), limit)
		},
	}, nil
}

// callMany has callers allocate, and maybe release, as bench/peers does.
func callMany(ctx context.Context, all []*caller, releases bool, least, limit int) (peerAnswer, error) {
	var some errgroup.Group // waited for below
	var begun, calls atomic.Int64
	began := time.Now()
	more := func() bool {
		n := int(begun.Add(1))
		return n <= least || time.Since(began) < crowdLong && (limit == 0 || n <= limit)
	}
	for _, c := range all {
		some.Go(func() (err error) {
			for err == nil && more() {
				if err = c.allocate(ctx); err == nil && releases {
					calls.Add(1)
					err = c.release(ctx)
				}
				calls.Add(1)
			}
			return err
		})
	}
	err := some.Wait()
	return peerAnswer{Calls: int(calls.Load()), Elapsed: time.Since(began)}, err
}

// start runs a peer and fills its stores.
func (m *match) start(ctx context.Context, c contestant) (*player, error) {
	version, err := moduleVersion(filepath.Join(m.peers, c.program), c.module)
	if err != nil {
		return nil, err
	}
	p, err := m.startPeer(c.name)
	if err != nil {
		return nil, err
	}
	m.closers = append(m.closers, p.close)
	open := func(store string, f filling) error {
		if _, err := p.do(ctx, peerRequest{Do: "open", Store: store, Prefix: &f.prefix, Taken: f.taken}); err != nil {
			return fmt.Errorf("open with %s: %w", f.name, err)
		}
		_, err := p.do(ctx, peerRequest{Do: "allocate", Store: store, Calls: turn, Most: peerPatience}) // warm
		return err
	}
	for i, f := range m.fills {
		if c.unfilled[i] == "" {
			if err := open(strconv.Itoa(i), f); err != nil {
				return nil, err
			}
		}
	}
	for _, way := range []string{growing, churning} {
		if err := open(way, m.fills[fillNone]); err != nil {
			return nil, err
		}
	}
	return &player{
		contestant: c,
		version:    version,
		rates:      make(map[string][]float64),
		failed:     make(map[string]int),
		give: func(ctx context.Context, fill, calls int, most time.Duration) (sample, error) {
			a, err := p.do(ctx, peerRequest{Do: "allocate", Store: strconv.Itoa(fill), Calls: calls, Most: most})
			return a.Took, err
		},
		many: func(ctx context.Context, way string, limit int) (peerAnswer, error) {
			return p.do(ctx, peerRequest{Do: way, Store: way, Callers: m.callers, Calls: m.least(), Long: crowdLong, Limit: limit})
		},
	}, nil
}

// peerTurns is how often ipamd and each peer have their turn at a filling in a
// round.
const peerTurns = 4

// round gives everybody their turns at each filling, and then with many
// callers.
func (m *match) round(ctx context.Context) error {
	var echoes sample
	all := append([]*player{m.ours}, m.theirs...)
	for fill := range m.fills {
		took := make([]sample, len(all))
		for range peerTurns {
			if err := echoes.repeat(turn, func() error { return m.echo.call(ctx) }); err != nil {
				return err
			}
			for i, p := range all {
				left := peerPatience - took[i].sum()
				if p.unfilled[fill] != "" || left <= 0 {
					continue
				}
				more, err := p.give(ctx, fill, turn, left)
				if err != nil {
					return fmt.Errorf("%s with %s: %w", p.title, m.fills[fill].name, err)
				}
				took[i] = append(took[i], more...)
			}
		}
		for i, p := range all {
			p.half[fill] = append(p.half[fill], took[i].p50())
		}
	}
	m.echoes = append(m.echoes, echoes.p50())
	for _, way := range []string{growing, churning} {
		for _, p := range all {
			limit := 0
			if way == growing {
				limit = m.share(p.contestant)
			}
			a, err := p.many(ctx, way, limit)
			if err != nil {
				return fmt.Errorf("%s with many callers: %w", p.title, err)
			}
			p.rates[way] = append(p.rates[way], float64(a.Calls)/a.Elapsed.Seconds())
			p.failed[way] += a.Failed
			if way == growing {
				p.grown += a.Calls
			}
		}
	}
	return nil
}
