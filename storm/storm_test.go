package storm_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/internal/ctrdtest"
	"github.com/ipamd/ipamd/internal/realtest"
)

var (
	storms = flag.Duration("storm.for", 30*time.Second, "how long the storm lasts, set-up and clean-up included, building apart")
	seed   = flag.Uint64("storm.seed", 0, "draws the faults; 0: a new one")
	alone  = flag.Bool("storm.alone", false, "nothing else runs on the machine: waits beside hostile ones are judged as promised, not as what a shared machine keeps")
	which  = flag.String("storm.containerd", "", "debian or v2; empty: the seed decides")
)

// draw chooses a seed if none is given. It comes before t.Parallel.
func draw() {
	if *seed == 0 {
		*seed = rand.Uint64N(1e9) + 1
	}
}

const (
	strangers = 8                // adding addresses by hand
	flooders  = 2                // asking for the gateway from ever new MACs
	settling  = 30 * time.Second // reserved for the end of the storm
)

// actors is how many have a namespace alone, and how many a container in it: as many as a runner
// has where they have the machine for themselves, and else as few as meet each fault.
func actors() (plain, contained int) {
	if *alone {
		return 180, 20
	}
	return 70, 10
}

// TestStorm: P1 to P7 at once, beside every fault.
func TestStorm(t *testing.T) {
	draw()
	r := rand.New(rand.NewPCG(*seed, 1))
	v := []ctrdtest.Version{ctrdtest.Debian, ctrdtest.V2}[r.IntN(2)]
	if *which != "" {
		v = ctrdtest.Version(*which)
	}
	t.Logf("-storm.seed=%d -storm.containerd=%s", *seed, v)
	needs(t)
	ipamd, ipamctl := realtest.Program(t, "cmd/ipamd"), realtest.Program(t, "cmd/ipamctl")
	began := time.Now()
	w := newWorld(t, v, ipamd, ipamctl)
	w.populate()
	relieve := w.besiege(*seed, atOnce(), 500*time.Millisecond, 2*time.Second)

	phase := func(what string) { t.Logf("%6v %s", time.Since(began).Round(time.Millisecond), what) }
	// On a busy machine the first start takes seconds: until then it is no fault that there are none.
	w.eventually("the first rules are made", func() bool { has, err := w.rules(); return err == nil && has != nil })
	phase("the storm begins")
	b := &faults{world: w, r: r}
	b.inject(max(*storms-time.Since(began)-settling, time.Second))
	plain, contained := actors()
	phase("it gets calm")
	close(w.calm)
	relieve()
	w.eventually("every actor is still or done", func() bool {
		return w.parked.Load()+w.left.Load() == int64(plain+contained+strangers+flooders)
	})
	phase("all stand still")
	w.settle(api.Bound, api.Cooling)
	w.recount()
	w.rulesAreTheBooks()
	w.everyoneSends(r)
	w.everyoneIsNamed()
	b.flush()                    // no bind comes to repair them
	if len(w.rec.living()) > 0 { // on a machine that is busy enough none may have got as far
		b.element()
	}
	w.rulesAreTheBooks()

	phase("all agree; a siege")
	living := w.rec.living()
	stop := w.siege(r)
	phase("all go")
	close(w.end)
	w.actors.Wait()
	w.releasesEnd(living)
	stop()
	phase("all are gone, and the siege is over")
	w.settle(api.Cooling)
	w.rulesAreTheBooks()
	w.unplugReceiver()
	w.nothingIsLeft()
	phase("nothing is left")
	if err := w.daemon.stop(); err != nil {
		t.Error(err)
	}
	w.t.Logf("ipamd had %d MiB at the most", w.daemon.memory>>20)
	if most := memoryMax(t); w.daemon.memory == 0 || w.daemon.memory > most {
		t.Errorf("ipamd had %d bytes of memory, and its unit allows %d", w.daemon.memory, most)
	}
	changes := w.readBook()
	if faults := judge(&w.rec.h); len(faults) > 0 {
		t.Errorf("%d faults:\n%s", len(faults), report(faults))
	}
	if faults := slices.Concat(judgeFrames(&w.rec.h), judgeReadings(&w.rec.h)); len(faults) > 0 {
		t.Errorf("%d faults of the rules:\n%s", len(faults), report(faults))
	}
	if faults := adopted(&w.rec.h, changes); len(faults) > 0 {
		t.Errorf("%d leases by labels:\n%s", len(faults), report(faults))
	}
	if faults := judgeBook(&w.rec.h, changes); len(faults) > 0 {
		t.Errorf("%d faults in the book:\n%s", len(faults), report(faults))
	}
	for _, a := range hostilities {
		if w.rec.did(attacked+a.name) == 0 {
			t.Errorf("it was no storm without %s", a.name)
		}
	}
	if missing := w.rec.missed("kill -9 of ipamd", "kill -9 of containerd", "clock: ", "namespace deleted", "address added by hand", flooded, filesAway, second, recordMade, flushed, elementDeleted, "rules read", "rules read as an address begins to cool", "two incarnations at one tap",
		"another's container in a lease", "odd namespace", impostor); len(missing) > 0 {
		t.Errorf("it was no storm without %q", missing)
	}
	t.Logf("%d changes in the book, %v in all\n%s", len(changes), time.Since(began).Round(time.Second), w.rec.counts())
}

// populate starts all actors. Each has a source of chance of its own, so that
// what one draws does not hang on when another does.
func (w *world) populate() {
	chance := func(n int) *rand.Rand { return rand.New(rand.NewPCG(*seed, uint64(n)+2)) }
	n := 0
	plain, contained := actors()
	begin := func(act func(*rand.Rand)) {
		r := chance(n)
		n++
		w.actors.Go(func() { act(r) })
	}
	for i := range plain + contained {
		begin(func(r *rand.Rand) {
			(&actor{world: w, r: r, name: fmt.Sprint("s", i), contained: i >= plain}).act()
		})
	}
	for range strangers {
		begin(func(r *rand.Rand) { (&stranger{world: w, r: r}).act() })
	}
	for range flooders {
		begin(func(r *rand.Rand) { (&flooder{world: w, r: r}).act() })
	}
	begin(w.listen)
	begin(w.watchCooling)
}
