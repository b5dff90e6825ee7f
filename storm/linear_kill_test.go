package storm_test

import (
	"math/rand/v2"
	"time"
)

// killFor kills ipamd with -9 and starts it again, for that long or until every
// caller is done: one time at a random moment, one time by the hand of the caller
// that it has just answered. On a slow machine it goes on until it was a trial,
// but for patience at the most. The last one lives on for a while, so that what
// gathers in its memory shows.
func (t *trial) killFor(long, least, most time.Duration) {
	t.t.Helper()
	done := make(chan struct{})
	go func() { t.actors.Wait(); close(done) }()
	r := rand.New(rand.NewPCG(t.seed, 1))
	aim := false
	began := time.Now()
	enough := func() bool {
		lasted := time.Since(began)
		return lasted > long+patience || lasted > long && len(t.tally().below(t.floors)) == 0
	}
	for n := 0; !enough() && t.ctx.Err() == nil && !closed(done); n++ {
		t.world.rest(r, least, most)
		if t.faults {
			t.fault(r, n)
		}
		switch {
		case t.daemon.over(): // by the fault
		case aim:
			t.killAnswering(done)
		default:
			t.kill()
		}
		aim = !aim
		if t.faults {
			t.step(r)
		}
		if err := t.daemon.start(); err != nil {
			t.t.Fatal(err)
		}
		if now := t.rec.now(); now < t.behind {
			t.anew = append(t.anew, now)
		}
	}
	t.world.rest(r, most, 2*most)
}

// killAnswering has the caller kill ipamd that is answered next, when it comes to
// answer, however long that takes to start; a plain kill ends the waiting for it
// once no caller is left.
func (t *trial) killAnswering(done <-chan struct{}) {
	t.aimed.Store(t.daemon.cmd.Process)
	late := time.NewTimer(patience)
	defer late.Stop()
	select {
	case <-t.daemon.ended:
	case <-done:
	case <-late.C:
	case <-t.ctx.Done():
	}
	if t.aimed.Swap(nil) != nil {
		t.kill()
		return
	}
	<-t.daemon.ended
	t.died()
	t.rec.counted(shot)
}

// shot is how a kill by the hand of a caller is counted.
const shot = "kill -9 by who was answered"

func (t *trial) kill() {
	if err := t.daemon.kill(); err != nil {
		t.rec.strange("%v", err)
	}
	t.died()
	t.rec.counted("kill -9 at random")
}

func (t *trial) died() {
	t.deaths = append(t.deaths, t.rec.now())
}

// shoot kills ipamd if it is aimed at.
func (t *trial) shoot() {
	if p := t.aimed.Swap(nil); p != nil {
		_ = p.Kill() // one that ended by itself is met by the next call
	}
}
