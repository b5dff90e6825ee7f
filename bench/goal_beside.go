package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// beside is goal 14: how many commits more an allocation waits for beside a pass:
// one that finds that all agree, and one that ends reservations past their
// deadline, in commits that may sit before an allocation's. They are counted
// (see before).
//
// What a caller of the daemon meets has the same limit, counted and timed. The
// commits of others that end between his asking and his answer, but for the one
// that carries it, are counted in the index of the log; those that end while the
// question or the answer is on its way are among them, for which nobody waits.
// Of the times, the unit is an allocation in this process, a commit and little
// else. An echo that syncs is asked beside the same passes, for scale: it knows
// of no book, so what it waits longer is the two processors' part.
func beside(ctx context.Context, b *bench) (rows []row, err error) {
	r, err := b.crowdedRunner(ctx)
	if err != nil {
		return nil, err
	}
	log, err := r.logIndex()
	if err != nil {
		return nil, err
	}
	defer func() { err = first(err, log.close()) }()
	book, pool, err := b.openBook(ctx, "commits")
	if err != nil {
		return nil, err
	}
	defer func() { err = first(err, book.Close()) }()
	s := &besides{bench: b, runner: r, log: log, unit: &bookCaller{book: book, pool: pool}, caller: r.caller()}
	if err := s.caller.churn(ctx, b.calls, new(sample), new(sample)); err != nil { // warm
		return nil, err
	}
	for _, steps := range []int{0, b.steps} {
		most, mean, err := before(ctx, b, steps)
		if rows = append(rows, most, mean); err != nil {
			return rows, err
		}
		more, err := s.measure(ctx, steps)
		if rows = append(rows, more...); err != nil {
			return rows, err
		}
	}
	return rows, nil
}

// besides are who calls beside a pass, and what counts the commits.
type besides struct {
	*bench
	runner *runner
	log    *logIndex
	unit   *bookCaller
	caller *caller
}

// A meeting is what calls beside some passes met.
type meeting struct {
	allocates, echoes sample
	others            []float64 // commits of others, by allocation
	passes, own       float64   // how many passes, and their commits
}

// measure does so beside passes that end so many reservations each.
func (s *besides) measure(ctx context.Context, steps int) (rows []row, err error) {
	of := fmt.Sprintf("a pass of %d steps", steps)
	most := row{goal: 14, what: "the same allocation, counted over the socket: commits of others between asking and answer, the most of all rounds / 1", most: 1, unit: "commits"}
	mean := row{goal: 14, what: "the same, mean / 1", unit: "commits"}
	own := row{goal: 14, what: "commits of " + of + " / 1", unit: "commits"}
	beside := "beside " + of + " - without"
	half := row{goal: 14, what: "timed: (allocate " + beside + "), p50 / a commit", most: 1}
	tail := row{goal: 14, what: "timed: (allocate " + beside + "), p99 / a commit's p99", most: 1}
	worst := row{goal: 14, what: "timed: (allocate " + beside + "), worst / a commit's worst", most: 1}
	other := row{goal: 14, what: "(an echo that syncs " + beside + "), p50 / a commit"}
	otherTail := row{goal: 14, what: "(an echo that syncs " + beside + "), p99 / a commit's p99"}
	otherWorst := row{goal: 14, what: "(an echo that syncs " + beside + "), worst / a commit's worst"}
	var others []float64
	calls := s.calls / 2 // of each kind a round: a call has a pass beside it, and waits for it
	err = s.each(ctx, func() error {
		var commits, alone, echoAlone sample
		var with meeting
		for range blocks {
			if err := commits.repeat(calls/blocks, func() error { return s.unit.allocate(ctx) }, func() error { return s.unit.release(ctx) }); err != nil {
				return err
			}
			for range calls / blocks / turn {
				if err := first(s.caller.churn(ctx, turn, &alone, new(sample)),
					echoAlone.repeat(turn, func() error { return s.durable.call(ctx) })); err != nil {
					return err
				}
			}
			for full := len(with.allocates) + calls/blocks; len(with.allocates) < full; {
				if err := s.meet(ctx, steps, &with); err != nil {
					return err
				}
			}
		}
		others = append(others, with.others...)
		mean.round(total(with.others)/float64(len(with.others)), 1)
		own.round(with.own/with.passes, 1)
		half.add(with.allocates.p50()-alone.p50(), commits.p50())
		tail.add(with.allocates.p99()-alone.p99(), commits.p99())
		worst.add(with.allocates.at(1)-alone.at(1), commits.at(1))
		other.add(with.echoes.p50()-echoAlone.p50(), commits.p50())
		otherTail.add(with.echoes.p99()-echoAlone.p99(), commits.p99())
		otherWorst.add(with.echoes.at(1)-echoAlone.at(1), commits.at(1))
		return nil
	})
	if len(others) > 0 {
		most.round(slices.Max(others), 1)
	}
	return []row{most, mean, own, half, tail, worst, other, otherTail, otherWorst}, err
}

// blocks is how often a round changes between with and without a pass.
const blocks = 4

// meet has a pass made that ends reservations, and calls meanwhile.
func (s *besides) meet(ctx context.Context, steps int, m *meeting) error {
	if err := s.runner.late(ctx, steps); err != nil {
		return err
	}
	before := s.log.commits()
	ended := make(chan error, 1)
	go func() { ended <- s.runner.endLate(ctx, steps) }() // waited for below
	for calls := uint32(0); ; calls += 2 {
		select {
		case err := <-ended:
			m.passes++
			m.own += float64(s.log.commits() - before - calls)
			return err
		default:
			if err := first(s.allocate(ctx, m), s.caller.release(ctx),
				m.echoes.timed(func() error { return s.durable.call(ctx) })); err != nil {
				return err
			}
		}
	}
}

// allocate counts the commits beside its own.
func (s *besides) allocate(ctx context.Context, m *meeting) error {
	before := s.log.commits()
	if err := m.allocates.timed(func() error { return s.caller.allocate(ctx) }); err != nil {
		return err
	}
	all := s.log.commits() - before
	if all == 0 {
		return errors.New("an allocation was answered and no commit counted")
	}
	m.others = append(m.others, float64(all-1))
	return nil
}

func total(of []float64) (sum float64) {
	for _, v := range of {
		sum += v
	}
	return sum
}
