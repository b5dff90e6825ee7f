package storm_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/ipamd/ipamd/client"
)

// judging bounds the search for an order of one address's or sandbox's calls. A
// sound history takes milliseconds; one that is not may take for ever.
const judging = time.Minute

// judge ends the trial, takes what the pool has left, kills once more, lists
// what the book has then, releases what was taken, and looks for faults.
func (t *trial) judge() {
	t.t.Helper()
	close(t.calm)
	t.actors.Wait()
	t.lister.Wait()
	r := rand.New(rand.NewPCG(t.seed, 0))
	taken := t.fill(r)
	t.mustList(r)
	t.kill()
	if err := t.daemon.start(); err != nil {
		t.t.Fatal(err)
	}
	t.mustList(r)
	for c, l := range taken {
		c.release(l)
	}
	t.mustList(r)
	t.eventually("ipamd is ready", func() bool { _, err := t.client.Ready(t.ctx); return err == nil })
	if err := t.daemon.stop(); err != nil {
		t.t.Error(err)
	}
	for _, odd := range t.rec.h.odd {
		t.t.Errorf("odd: %s", odd)
	}
	began := time.Now()
	faults := acknowledged(t.calls, t.aways)
	unsure(t.calls, t.aways)
	t.bury(t.calls)
	tight, _ := cramped(t.calls, tightRest, t.anewSince(t.calls), poolSize)
	faults = append(faults, tight...)
	faults = append(faults, blame(t.calls, tightRest)...)
	illegal, unknown := crooked(t.calls, tightRest, judging)
	took := time.Since(began)
	for _, key := range unknown {
		t.t.Errorf("%s: not judged within %v", key, judging)
	}
	for _, key := range illegal {
		faults = append(faults, "not linearizable: "+key)
	}
	for _, c := range t.calls {
		if c.Verb == allocating && c.done() {
			t.rec.h.grants = append(t.rec.h.grants, grant{asked: c.Asked, answered: c.Answered, addr: c.Addr,
				lease: c.Lease, uid: c.UID, existing: c.Existing, early: c.Early})
		}
	}
	began = time.Now()
	faults = append(faults, judgeBook(&t.rec.h, t.readBook())...)
	book := time.Since(began)
	if len(faults) > 0 {
		t.t.Errorf("%d faults:\n%s", len(faults), report(kinds(faults)))
	}
	if len(faults)+len(unknown) > 0 {
		where, err := evidence("", t.seed, t.calls, tightRest, append(illegal, unknown...))
		if err == nil { // with the book, whose history says by whom each lease ended
			err = os.CopyFS(filepath.Join(where, "book"), os.DirFS(filepath.Dir(t.daemon.book)))
		}
		t.t.Errorf("-storm.seed=%d; the history and its drawing are in %s, %v", t.seed, where, err)
	}
	did := t.tally()
	for _, words := range did.below(t.floors) {
		t.t.Errorf("this was no trial: %s", words)
	}
	t.t.Logf("%d calls, %+v, judged in %v, the book in %v\n%s",
		len(t.calls), did, took.Round(time.Millisecond), book.Round(time.Millisecond), t.rec.counts())
}

// fill takes every address that is left, now that all is calm: each that was
// refused was refused for something that passes. Who comes when the pool is
// empty is refused for something that stays. It returns who was given what.
func (t *trial) fill(r *rand.Rand) map[*caller]call {
	t.t.Helper()
	left := poolSize - len(t.mustList(r).Open)
	late := time.AfterFunc(patience, t.giveUp)
	defer late.Stop()
	var all sync.WaitGroup
	var mu sync.Mutex
	taken := make(map[*caller]call)
	for n := range left {
		all.Go(func() {
			c := &caller{trial: t, id: t.callers + 1 + n, r: rand.New(rand.NewPCG(t.seed, uint64(t.callers+n)+2))}
			l, ok := c.allocate(fmt.Sprint("last-", n))
			mu.Lock()
			defer mu.Unlock()
			if ok {
				taken[c] = l
			}
		})
	}
	all.Wait()
	if len(taken) < left {
		t.t.Fatalf("the pool gives %d addresses, and has %d left", len(taken), left)
	}
	last := call{Client: t.callers, Verb: allocating, UID: "one-too-many"}
	err := t.once(&last, func() error { return t.give(t.ctx, &last) })
	if !errors.Is(err, client.ErrPoolExhausted) {
		t.t.Errorf("a pool without an address gives %v, %v", last, err)
	}
	return taken
}

// mustList lists when ipamd has to answer in the end.
func (t *trial) mustList(r *rand.Rand) call {
	t.t.Helper()
	all, err := t.listOnce(r)
	if err != nil {
		t.t.Fatal(err)
	}
	return all
}

// bury notes by when each call without an answer was over: when the next end of
// ipamd was seen after its caller had given up.
func (t *trial) bury(calls []call) {
	for i, c := range calls {
		if c.lost() && c.Over == 0 {
			if n := slices.IndexFunc(t.deaths, func(m moment) bool { return m > c.Left }); n >= 0 {
				calls[i].Over = t.deaths[n]
			}
		}
	}
}

// A tally counts what a trial is made of.
type tally struct {
	kills  int
	aimed  int // of the kills, by who was answered
	lost   int // calls without an answer, but for lists
	lists  int
	cycles int
	early  int // addresses given before they had cooled
	cooled int // bound addresses given to a stranger after their rest
	roomy  int // addresses given when there surely was room

	away     int // times that its files were moved away and back
	readonly int // calls that were refused because of that
	seconds  int // further ipamds that were started on the book
	stepped  int // steps of the uptime
	floods   int
}

// in is what is left of a minute's tally in a shorter time.
func (t tally) in(d time.Duration) tally {
	for _, n := range t.all() {
		*n.did = max(int(float64(*n.did)*min(1, d.Minutes())), min(*n.did, 1))
	}
	return t
}

// A count is one of a tally's.
type count struct {
	what string
	did  *int
}

func (t *tally) all() []count {
	return []count{
		{"kills", &t.kills},
		{"kills by who was answered", &t.aimed},
		{"calls without an answer", &t.lost},
		{"lists", &t.lists},
		{"turns", &t.cycles},
		{"early reuses", &t.early},
		{"reuses after the whole cooldown", &t.cooled},
		{"answers when there surely was room", &t.roomy},
		{"moves of the book's files", &t.away},
		{"calls that were refused without them", &t.readonly},
		{"further ipamds on the book", &t.seconds},
		{"steps of the uptime", &t.stepped},
		{"floods", &t.floods},
	}
}

func (t *trial) tally() tally {
	out := tally{kills: len(t.deaths), cycles: int(t.turned.Load()), aimed: t.rec.did(shot),
		away: t.rec.did(filesAway), readonly: t.rec.did(notWritten), seconds: t.rec.didAny(second),
		stepped: t.rec.didAny(stepped), floods: t.rec.did(flooded)}
	t.writing.Lock()
	calls := slices.Clone(t.calls)
	t.writing.Unlock()
	unsure(calls, t.aways)
	t.bury(calls)
	for _, c := range calls {
		switch {
		case c.lists():
			out.lists++
		case c.Verb == listingAll: // it may have been asked in vain: nothing hangs on it
		case c.lost():
			out.lost++
		case c.Verb == allocating && c.Early && !c.Existing:
			out.early++
		}
	}
	was := make(map[netip.Addr]*holding)
	for _, o := range holdings(calls) {
		if w := was[o.addr]; w != nil && w.bound && w.uid != o.uid && o.fresh != nil && !o.early {
			out.cooled++
		}
		was[o.addr] = o
	}
	_, out.roomy = cramped(calls, tightRest, t.anewSince(calls), poolSize)
	return out
}

// below names what there was too little of.
func (t tally) below(floor tally) (out []string) {
	least := floor.all()
	for i, c := range t.all() {
		if *c.did < *least[i].did {
			out = append(out, fmt.Sprintf("%d %s of %d at the least", *c.did, c.what, *least[i].did))
		}
	}
	return out
}
