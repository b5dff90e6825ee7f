package bridge

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ipamd/ipamd/bridge/rtnl"
)

const (
	// retryAfter is when something that could not be read is tried again,
	// and the least time between two look-ups of all names.
	retryAfter = time.Second
	// debounce is the least time between two steps: each frame of a flood wakes
	// the daemon, and one that looks at once, for each of them, has time for
	// nothing else. It delays nothing but the board of a caller that does not settle.
	debounce = time.Millisecond
	// recountEvery is the least time between two lists of all neighbours that
	// a flood asks for.
	recountEvery = time.Second
	// reopenFirst and reopenMost bound the back-off when the sockets cannot
	// be opened again.
	reopenFirst = 100 * time.Millisecond
	reopenMost  = 10 * time.Second
	// guestShare bounds the time that guests can take: what their news asks for rests so
	// many times as long as it took.
	guestShare = 9
)

// A task is something that Run does beside taking in news.
type task struct {
	wanted func(pending) bool
	do     func(context.Context) error
	every  time.Duration // the least time between two
	next   time.Time     // not before then
}

// pending is what there is to do.
type pending struct {
	closed, broken           bool
	behind                   bool // some news of neighbours was left
	unnamed, search, recount bool
	crowded, locate          bool
}

func (b *Bridge) pending() pending {
	b.mu.Lock()
	defer b.mu.Unlock()
	return pending{
		closed: b.closed, broken: b.trouble != nil, behind: b.trouble == nil && b.neighbour.isBehind(),
		unnamed: b.netns.unnamed, search: b.netns.stacked.again, recount: b.neighbour.lost,
		crowded: len(b.netns.crowded(false)) > 0, locate: len(b.answers.unlocated) > 0,
	}
}

// A schedule is what Run keeps from one step to the next.
type schedule struct {
	refresh  time.Time     // when all is to be read anew
	reopenIn time.Duration // back-off
	tasks    []task
}

func (b *Bridge) schedule() *schedule {
	settled := func(do func(context.Context) error) func(context.Context) error {
		return func(ctx context.Context) error { return errors.Join(do(ctx), b.Settle(ctx)) }
	}
	return &schedule{reopenIn: reopenFirst, tasks: []task{
		{func(p pending) bool { return p.unnamed }, settled(b.nameSpaces), retryAfter, time.Time{}},
		{func(pending) bool { return true }, b.findListeners, childrenEvery, time.Time{}},
		{func(p pending) bool { return p.search }, settled(b.searchStacked), childrenPause, time.Time{}},
		{func(p pending) bool { return p.recount }, b.recountNeighbours, recountEvery, time.Time{}},
		{func(p pending) bool { return p.crowded }, settled(b.readCrowds), crowdsEvery, time.Time{}},
		{func(p pending) bool { return p.locate }, func(ctx context.Context) error { return b.Settle(ctx) }, locateEvery, time.Time{}},
	}}
}

// Run keeps the board current: it takes in kernel news and answers to probes
// as they come, reads everything anew every Config.Every as a backstop, and
// opens the sockets again when they broke. It blocks until ctx ends or the
// Bridge is closed, and returns nil then. It waits in one poll(2) and starts
// no goroutine.
func (b *Bridge) Run(ctx context.Context) error {
	b.running.Lock()
	defer b.running.Unlock()
	stop := context.AfterFunc(ctx, b.wakeup.wake)
	defer stop()
	s := b.schedule()
	for ctx.Err() == nil {
		p := b.pending()
		if p.closed {
			return nil
		}
		began := time.Now()
		// Whatever goes wrong in there has silenced a witness, which is where
		// it is logged.
		err := b.step(ctx, s, p.broken)
		if err := b.sleep(began, s.wake(b.pending(), err)); err != nil {
			return fmt.Errorf("wait for kernel news: %w", err)
		}
	}
	return nil
}

// step does what is due.
func (b *Bridge) step(ctx context.Context, s *schedule, broken bool) error {
	if broken {
		if err := b.openAgain(); err != nil {
			return err
		}
		s.reopenIn, s.refresh = reopenFirst, time.Time{}
	}
	var err error
	if now := time.Now(); now.Before(s.refresh) {
		err = b.Settle(ctx)
	} else {
		s.refresh = now.Add(b.cfg.Every)
		err = b.Refresh(ctx)
	}
	// What Settle leaves of the neighbours' news is done in pieces as small.
	for n := 0; n < rtnl.MostAtOnce/neighboursAtOnce && err == nil && ctx.Err() == nil && b.pending().behind; n++ {
		err = b.Settle(ctx)
	}
	b.closeIngress()
	for i, p := 0, b.pending(); i < len(s.tasks); i++ {
		if t := &s.tasks[i]; t.wanted(p) && !time.Now().Before(t.next) {
			began := time.Now()
			err = errors.Join(err, t.do(ctx))
			t.next = time.Now().Add(max(t.every, guestShare*time.Since(began)))
		}
	}
	return err
}

// wake is when to step again without news.
func (s *schedule) wake(p pending, err error) time.Time {
	if p.broken {
		in := s.reopenIn
		s.reopenIn = min(2*in, reopenMost)
		return time.Now().Add(in)
	}
	next := s.refresh
	earlier := func(t time.Time) {
		if t.Before(next) {
			next = t
		}
	}
	for _, t := range s.tasks {
		if t.wanted(p) {
			earlier(t.next)
		}
	}
	if err != nil {
		earlier(time.Now().Add(retryAfter))
	}
	return next
}

// openAgain replaces the sockets. Only Run does it, for only Run polls them
// without the lock.
func (b *Bridge) openAgain() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closeSockets()
	if err := b.openSockets(); err != nil {
		b.trouble = err
		b.silence(err)
		return err
	}
	b.cfg.Log.Info("kernel news is read again", "bridge", b.cfg.Name)
	return nil
}

// readCrowds lists the crowded namespaces that wait, in no order, for a while.
func (b *Bridge) readCrowds(ctx context.Context) error {
	began := time.Now()
	for _, id := range b.crowded(false) {
		if err := b.readCrowd(ctx, id); err != nil || time.Since(began) > outsideWithin {
			return err
		}
	}
	return nil
}

// closeIngress closes a socket of the answers that nothing is suspected of any more.
func (b *Bridge) closeIngress() {
	b.mu.Lock()
	idle := b.answers.idleIngress()
	b.mu.Unlock()
	if idle != nil {
		idle.Close()
	}
}

// sleep waits for news, answers, a wakeup, or the time; after a step that began
// just now for the wakeup alone, for so long.
func (b *Bridge) sleep(began, until time.Time) error {
	fds := []unix.PollFd{{Fd: int32(b.wakeup.fd), Events: unix.POLLIN}}
	if rest := debounce - time.Since(began); rest > 0 {
		_, _ = unix.Poll(fds, int((rest+time.Millisecond-1)/time.Millisecond)) // an error comes again below
	}
	b.mu.Lock()
	if b.trouble == nil {
		fds = append(fds, b.listening()...)
	}
	b.mu.Unlock()
	wait := max(0, time.Until(until).Milliseconds()+1) // rounded up: not to come too early
	_, err := unix.Poll(fds, int(wait))
	if err != nil && !errors.Is(err, unix.EINTR) {
		return err
	}
	if fds[0].Revents != 0 {
		b.wakeup.clear()
	}
	return nil
}

// A wakeup ends a poll(2). It carries no payload: look again.
type wakeup struct {
	mu sync.Mutex
	fd int
}

func newWakeup() (*wakeup, error) {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("make eventfd: %w", err)
	}
	return &wakeup{fd: fd}, nil
}

// wake may be called at any time, also after close.
func (w *wakeup) wake() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.fd >= 0 {
		_, _ = unix.Write(w.fd, []byte{1, 0, 0, 0, 0, 0, 0, 0}) // a full counter wakes, too
	}
}

// clear takes the wakeup back, before the caller looks.
func (w *wakeup) clear() {
	_, _ = unix.Read(w.fd, make([]byte, 8)) // there may have been none
}

func (w *wakeup) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	_ = unix.Close(w.fd)
	w.fd = -1
}
