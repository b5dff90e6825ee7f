package bridge

import (
	"context"
	"errors"
	"fmt"
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
	// nothing else. It delays nothing but the board of who does not settle.
	debounce = time.Millisecond
	// recountEvery is the least time between two lists of all neighbours that
	// a flood asks for.
	recountEvery = time.Second
	// reopenFirst and reopenMost bound the back-off when the sockets cannot
	// be opened again.
	reopenFirst = 100 * time.Millisecond
	reopenMost  = 10 * time.Second
)

// Run keeps the board current: it takes in kernel news and answers to probes
// as they come, reads everything anew every Config.Every as a backstop, and
// opens the sockets again when they broke. It blocks until ctx ends or the
// Bridge is closed, and returns nil then. It waits in one poll(2) and starts
// no goroutine.
func (b *Bridge) Run(ctx context.Context) error {
	b.running.Lock()
	defer b.running.Unlock()
	stop := context.AfterFunc(ctx, b.alarm.ring)
	defer stop()
	t := timetable{reopenIn: reopenFirst}
	for ctx.Err() == nil && !b.isClosed() {
		began := time.Now()
		// Whatever goes wrong in there has silenced a witness, which is where
		// it is told and logged.
		_ = b.step(ctx, &t)
		if err := b.sleep(began, t.wake); err != nil {
			return fmt.Errorf("wait for kernel news: %w", err)
		}
	}
	return nil
}

// A timetable is what Run keeps from one step to the next.
type timetable struct {
	refresh  time.Time     // when all is to be read anew
	names    time.Time     // when names may be looked up again
	children time.Time     // when it is to be looked at who listens on the bridge
	searched time.Time     // when links on the bridge were searched for
	recount  time.Time     // when the neighbours may be listed again
	crowds   time.Time     // when crowded namespaces may be listed again
	reopenIn time.Duration // back-off
	wake     time.Time     // when to step again without news
}

// step does what is due.
func (b *Bridge) step(ctx context.Context, t *timetable) error {
	now := time.Now()
	broken, unnamed := b.condition()
	if broken {
		if err := b.openAgain(); err != nil {
			t.wake = now.Add(t.reopenIn)
			t.reopenIn = min(2*t.reopenIn, reopenMost)
			return err
		}
		t.reopenIn = reopenFirst
		t.refresh = now
	}
	var err error
	switch {
	case !now.Before(t.refresh):
		t.refresh, t.names = now.Add(b.cfg.Every), now.Add(retryAfter)
		err = b.Refresh(ctx)
	case unnamed && !now.Before(t.names):
		t.names = now.Add(retryAfter)
		b.nameSpaces(ctx)
		err = b.Settle(ctx)
	default:
		err = b.Settle(ctx)
	}
	if b.missesChildren(ctx, now, t) {
		err = errors.Join(err, b.searchChildren(ctx), b.Settle(ctx))
		t.searched = now.Add(crowdsShare * time.Since(now)) // news that guests make asks for it
	}
	b.closeIngress()
	err = errors.Join(err, b.catchUp(ctx, t), b.readCrowds(ctx, t))
	t.wake = t.refresh
	if len(b.crowdedSpaces(false)) > 0 && t.crowds.Before(t.wake) {
		t.wake = t.crowds
	}
	if again := t.recount; b.hasLostNeighbours() && again.Before(t.wake) {
		t.wake = again
	}
	if _, unnamed = b.condition(); unnamed && t.names.Before(t.wake) {
		t.wake = t.names
	}
	if t.children.Before(t.wake) {
		t.wake = t.children
	}
	if again := now.Add(placeEvery); b.isPlacing() && again.Before(t.wake) {
		t.wake = again
	}
	if retry := now.Add(retryAfter); err != nil && retry.Before(t.wake) {
		t.wake = retry
	}
	return err
}

// catchUp does what Settle leaves of the neighbours' news, in pieces as small. Where
// more is told than is remembered they are listed: a tenth of the time at most.
func (b *Bridge) catchUp(ctx context.Context, t *timetable) error {
	for range rtnl.MostAtOnce / neighboursAtOnce {
		if !b.isBehind() || ctx.Err() != nil {
			break
		}
		if err := b.Settle(ctx); err != nil {
			return err
		}
	}
	if !b.hasLostNeighbours() || time.Now().Before(t.recount) {
		return nil
	}
	began := time.Now()
	err := b.recountNeighbours(ctx)
	t.recount = time.Now().Add(max(recountEvery, 9*time.Since(began)))
	return err
}

// isBehind reports whether a Settle has left some news of neighbours.
func (b *Bridge) isBehind() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.trouble == nil && (b.neighboursMore.Load() || !b.neighboursLost && len(b.neighboursAgain) > 0)
}

func (b *Bridge) hasLostNeighbours() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.neighboursLost
}

// condition reports whether the sockets broke, and whether there are
// namespaces whose names were not looked up.
func (b *Bridge) condition() (broken, unnamed bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.trouble != nil, b.unnamed
}

// isPlacing reports whether there are answers whose port is to be found yet.
func (b *Bridge) isPlacing() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.unplaced) != 0
}

func (b *Bridge) isClosed() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.closed
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

// sleep waits for news, answers, the alarm, or the time; after a step that began
// just now for the alarm alone, for so long.
func (b *Bridge) sleep(began, until time.Time) error {
	fds := []unix.PollFd{{Fd: int32(b.alarm.fd), Events: unix.POLLIN}}
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
		b.alarm.quiet()
	}
	return nil
}
