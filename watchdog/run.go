package watchdog

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/ipamd/ipamd/ipam"
)

// Run confirms releases until ctx ends, and returns nil then, with no
// goroutine left. There is one Run at a time.
//
// Each attempt has a goroutine and a deadline of its own: one that waits for a
// stuck shim holds up no other lease. Attempts whose look-ups found nothing left
// meet in a second stage, which reads the kernel's news and the runtime's list
// once for all of them, and whose commits are shared.
func (w *Watchdog) Run(ctx context.Context) error {
	if !w.start() {
		return errors.New("run the watchdog: it runs already")
	}
	var works sync.WaitGroup
	defer func() {
		works.Wait() // attempts use their tracks, which stop clears
		w.stop()
	}()
	e := w.listen()
	r := reading{index: newIndex(nil)}
	for ctx.Err() == nil {
		now := time.Now()
		// Run is not woken where nothing but the revision has changed: that reading is made with
		// whatever comes next.
		if (e.news || r.rev != w.cfg.Book.Rev()) && !now.Before(r.next) {
			e.news = false
			w.read(&r, now)
		}
		next := w.begin(ctx, &works, &r, e.counts, now)
		if e.news && (next.IsZero() || r.next.Before(next)) {
			next = r.next
		}
		e.sleep(ctx, w.wakeup, w.pulse, next)
	}
	return nil
}

func (w *Watchdog) start() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	was := w.running
	w.running = true
	return !was
}

func (w *Watchdog) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.running = false
	clear(w.tracks)
	w.toConclude, w.justReleased = nil, nil
	w.ended.Send()
}

// A subscription holds the channels that say "look again". Each is asked for anew before
// the reading that follows, so nothing that comes in between is lost.
type subscription struct {
	sources [4]func() <-chan struct{}
	open    [4]<-chan struct{}
	counts  newsCounts
	news    bool
}

// The sources by their index in a subscription.
const (
	fromBook = iota
	fromBoard
	fromRuntime
	fromPorts
)

func (w *Watchdog) listen() *subscription {
	e := &subscription{news: true}
	e.sources[fromBook], e.sources[fromBoard], e.sources[fromPorts] = w.bookChanged, w.cfg.Board.Changed, w.cfg.PortsChanged
	if w.cfg.Runtime != nil {
		e.sources[fromRuntime] = w.cfg.Runtime.Changed
	}
	for i, source := range e.sources {
		if source != nil {
			e.open[i] = source()
		}
	}
	return e
}

// bookChanged does not wake for an address that is given or freed, nor for a lease that expires:
// one that was never bound has no workload that could be gone.
func (w *Watchdog) bookChanged() <-chan struct{} {
	return w.cfg.Book.Touched(ipam.Bound, ipam.Paused, ipam.Releasing)
}

// receive notes which sources have news, and listens on.
func (e *subscription) receive() {
	for i, ch := range e.open {
		select {
		case <-ch:
		default:
			continue
		}
		e.open[i] = e.sources[i]()
		e.news = true
		switch i {
		case fromRuntime:
			e.counts.runtime++
		case fromPorts:
			e.counts.ports++
		}
	}
}

// sleep returns when there is something to do: news, a wake-up, a caller of Alive, or the time
// next (zero: none). While news waits for the next reading, more news is no reason to wake.
func (e *subscription) sleep(ctx context.Context, wakeup <-chan struct{}, pulse chan<- struct{}, next time.Time) {
	var timer <-chan time.Time
	if !next.IsZero() {
		t := time.NewTimer(time.Until(next))
		defer t.Stop()
		timer = t.C
	}
	open := e.open
	if e.news {
		open = [4]<-chan struct{}{}
	}
	select {
	case <-ctx.Done():
	case <-wakeup:
	case pulse <- struct{}{}:
	case <-timer:
	case <-open[fromBook]:
	case <-open[fromBoard]:
	case <-open[fromRuntime]:
	case <-open[fromPorts]:
	}
	e.receive()
}

// Alive returns nil as soon as Run shows that it goes on, which is when it has
// begun what was due and waits for more. Otherwise it returns an error that
// wraps ctx's. Attempts under way are not waited for: each has its deadline.
func (w *Watchdog) Alive(ctx context.Context) error {
	return w.pulse.Wait(ctx, "the confirmation of releases")
}
