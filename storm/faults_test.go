package storm_test

import (
	"math/rand/v2"
	"time"
)

// The faults: daemons are killed and started again, and clocks stepped in between, on
// the test's goroutine.
type faults struct {
	*world
	r     *rand.Rand
	boots int
}

// inject sees to it that something happens every few seconds, for so long. Each
// kind comes once before chance decides alone, however short the storm.
func (b *faults) inject(d time.Duration) {
	b.t.Helper()
	kinds := []func(){b.containerd, b.both, b.filesAway, func() { b.secondDaemon(b.r) }, func() { b.ipamd(b.r.IntN(clocks)) },
		b.flush, b.element}
	b.r.Shuffle(len(kinds), func(i, j int) { kinds[i], kinds[j] = kinds[j], kinds[i] })
	pause := 500 * time.Millisecond
	if *alone {
		pause = time.Second
	}
	for end := time.Now().Add(d); b.ctx.Err() == nil && (len(kinds) > 0 || time.Now().Before(end)); {
		b.rest(b.r, pause, 3*pause)
		b.readRules()
		if len(kinds) > 0 {
			kinds[0]()
			kinds = kinds[1:]
			continue
		}
		switch b.r.IntN(17) {
		case 0, 1:
			b.containerd()
		case 2:
			b.both()
		case 3, 4:
			b.filesAway()
		case 5:
			b.secondDaemon(b.r)
		case 6, 7:
			b.flush()
		case 8, 9:
			b.element()
		default:
			b.ipamd(b.r.IntN(2 * clocks))
		}
	}
	// A daemon that starts behind a clock that was stepped back says so for as long as
	// it runs, and in the end there has to be nothing to say.
	b.rest(b.r, time.Second, 2*time.Second)
	b.ipamd(clocks)
}

// wallStepped counts the edits of the book that look like a step of the wall clock.
const wallStepped = "clock: wall stepped"

// clocks is how many things may happen to ipamd's time while it is down.
const clocks = 4

// ipamd kills ipamd and starts it again. What is below clocks says what happens
// to its time in between; nothing does at clocks and above.
func (b *faults) ipamd(what int) {
	b.t.Helper()
	from := b.rec.now()
	b.killIpamd()
	var leapt time.Duration
	var unruled *gap
	switch what {
	case 0:
		b.daemon.step(time.Duration(1+b.r.IntN(4)) * time.Second) // which shortens no wait: the wall clock knows better
		b.rec.counted(stepped + "forward")
	case 1:
		b.daemon.step(-time.Duration(1+b.r.IntN(4)) * time.Second)
		b.rec.counted(stepped + "backward")
	case 2:
		uptime, err := b.daemon.reboot(b.boots)
		if err != nil {
			b.t.Fatal(err)
		}
		b.boots++
		unruled = b.flushRules()
		leapt = uptime
		b.rec.counted("clock: another boot")
	case 3:
		by := between(b.r, -2*time.Hour, 2*time.Hour)
		if err := b.daemon.moveWall(by); err != nil {
			b.t.Fatal(err)
		}
		b.rec.counted(wallStepped)
	}
	b.rest(b.r, time.Millisecond, 500*time.Millisecond)
	l := &leap{from, never, leapt}
	if leapt > 0 { // who is answered by the next ipamd already asks for it
		b.rec.add(func(h *history) { h.leaps = append(h.leaps, l) })
	}
	b.startIpamd()
	to := b.rec.now()
	b.rec.add(func(*history) { l.to = to })
	if unruled != nil {
		b.areBack(unruled)
	}
}

func (b *faults) killIpamd() {
	b.t.Helper()
	if err := b.daemon.kill(); err != nil {
		b.rec.strange("%v", err)
	}
	b.rec.counted("kill -9 of ipamd")
}

func (b *faults) startIpamd() {
	b.t.Helper()
	if err := b.daemon.start(); err != nil {
		b.t.Fatal(err)
	}
}

// containerd kills containerd and starts it again after a while.
func (b *faults) containerd() {
	b.t.Helper()
	b.runtime.Kill9()
	b.rec.counted("kill -9 of containerd")
	b.rest(b.r, time.Millisecond, 2*time.Second)
	b.runtime.Restart()
}

// both takes both away at once; ipamd comes back to a dead containerd.
func (b *faults) both() {
	b.t.Helper()
	b.runtime.Kill9()
	b.killIpamd()
	b.rec.counted("kill -9 of containerd")
	b.startIpamd()
	b.rest(b.r, time.Millisecond, 2*time.Second)
	b.runtime.Restart()
}
