// Package attach passes the making and the taking away of ports to a helper, which has
// the rights for it, and the daemon has not.
//
// The helper asks for work, by a long poll, and reports each piece. Nothing here is
// written down: a piece of work lives as long as the call that wants it. What a helper
// had in hand when it ended is given to the next one, which finishes it, as ports are
// made by whole state. It is no stream of changes, since a port that is wanted is no
// change of the book; one that was made is, by the bind.
package attach

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/ipamd/ipamd/internal/broadcast"
)

// ErrNoHelper means that no helper asks for work.
var ErrNoHelper = errors.New("ipamd-plumb, which makes ports, does not run: systemctl start ipamd-plumb")

// ErrBusy means that the helper has other work in hand, and began none of this.
var ErrBusy = errors.New("ipamd-plumb is busy with other ports, and came to this one too late")

// around is how long a helper counts as there after it asked: it asks again at once,
// and systemd starts one that ended within two seconds.
const around = 5 * time.Second

// inHand is how long a helper that has work in hand counts as there without asking: it gives no
// piece more time than this.
const inHand = 20 * time.Second

// A Job is one piece of work.
type Job[W, R any] struct {
	ID   string // ends in a number: a later job has a higher one
	Work W

	worker   string // the helper that has it in hand; "": none
	reported chan R
	kept     chan bool
	given    bool // a report came
}

// A Desk passes work W to helpers, and their reports R back. All methods are safe for
// concurrent use. Its zero value is empty; the exported fields are not changed afterwards.
type Desk[W, R any] struct {
	Prefix string // of the jobs' ids: they set two desks apart
	None   error  // in the place of [ErrNoHelper], and wraps it

	mu      sync.Mutex
	jobs    []*Job[W, R]
	last    int64              // number of the newest job; they rise over restarts
	changed broadcast.Signal   // work came
	asked   time.Time          // by a helper, last
	asking  int                // helpers that wait now
	worker  string             // the newest helper
	hand    map[string]held[W] // the work that it has in hand, by the jobs' ids; also of callers that have left
	wanted  bool               // there was work
	arrived chan struct{}      // one slot: a helper came; nil before the first call of Arrived
}

// A held is work in a helper's hand.
type held[W any] struct {
	work  W
	since time.Time
}

// Has reports whether there is work of a kind that a helper may do yet: it waits, or is in hand. What is in
// hand counts also where its caller has left, until the helper has reported it or has had its time for it, or
// another helper came.
func (d *Desk[W, R]) Has(is func(W) bool) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, j := range d.jobs {
		if is(j.Work) {
			return true
		}
	}
	for _, h := range d.hand {
		if time.Since(h.since) < inHand+around && is(h.work) {
			return true
		}
	}
	return false
}

// Arrived has a value after a helper came which was not there before.
func (d *Desk[W, R]) Arrived() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.arrived == nil {
		d.arrived = make(chan struct{}, 1)
	}
	return d.arrived
}

// none is the answer while no helper is there.
func (d *Desk[W, R]) none() error {
	if d.None != nil {
		return d.None
	}
	return ErrNoHelper
}

// Present says whether a helper is there.
func (d *Desk[W, R]) Present() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.present()
}

// Wanted says whether there was work for a helper since the daemon's start.
func (d *Desk[W, R]) Wanted() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.wanted
}

// present says whether a helper asks, has asked just now, or is at work.
func (d *Desk[W, R]) present() bool {
	return d.asking > 0 || !d.asked.IsZero() && time.Since(d.asked) < around ||
		slices.ContainsFunc(slices.Collect(maps.Values(d.hand)), func(h held[W]) bool { return time.Since(h.since) < inHand })
}

// Do has a piece of work done, and calls settle with the report, while the helper waits
// for whether the port is kept. That no helper is there to do it is [ErrNoHelper], at once.
func (d *Desk[W, R]) Do(ctx context.Context, work W, settle func(R) (keep bool, err error)) error {
	d.mu.Lock()
	d.wanted = true
	if !d.present() {
		d.mu.Unlock()
		return d.none()
	}
	d.last = max(d.last+1, time.Now().UnixMicro())
	j := &Job[W, R]{ID: d.Prefix + strconv.FormatInt(d.last, 10), Work: work, reported: make(chan R, 1), kept: make(chan bool, 1)}
	d.jobs = append(d.jobs, j)
	d.changed.Send()
	d.mu.Unlock()
	defer d.drop(j)
	select {
	case r := <-j.reported:
		keep, err := settle(r)
		j.kept <- keep
		return err
	case <-ctx.Done():
	}
	d.drop(j)
	switch {
	case j.given: // at the same moment: the helper waits for what becomes of it
		keep, err := settle(<-j.reported)
		j.kept <- keep
		return err
	case j.worker != "":
		return ctx.Err()
	case d.Present():
		return ErrBusy
	}
	return d.none()
}

func (d *Desk[W, R]) drop(gone *Job[W, R]) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i, j := range d.jobs {
		if j == gone {
			d.jobs = append(d.jobs[:i], d.jobs[i+1:]...)
			return
		}
	}
}

// Take waits for work, until ctx ends: nil. A worker is one life of a helper: what the
// one before it had in hand is given to a new one. Where ctx was cancelled before, the helper has hung
// up: work that it got would reach nobody, and its caller would wait in vain.
func (d *Desk[W, R]) Take(ctx context.Context, worker string) *Job[W, R] {
	d.mu.Lock()
	defer d.mu.Unlock()
	if errors.Is(ctx.Err(), context.Canceled) { // past its deadline it gets what is there: it may not want to wait
		return nil
	}
	if d.arrived != nil && (worker != d.worker || !d.present()) {
		broadcast.Wake(d.arrived)
	}
	d.asking++
	defer func() { d.asking--; d.asked = time.Now() }()
	if worker != d.worker {
		d.worker, d.hand = worker, make(map[string]held[W])
	}
	for {
		for _, j := range d.jobs {
			if j.worker != worker && (j.worker == "" || worker == d.worker) && !j.given {
				j.worker = worker
				if d.worker == worker {
					maps.DeleteFunc(d.hand, func(_ string, h held[W]) bool { return time.Since(h.since) >= inHand+around })
					d.hand[j.ID] = held[W]{j.Work, time.Now()}
				}
				return j
			}
		}
		changed := d.changed.Next()
		d.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
		}
		d.mu.Lock()
		if ctx.Err() != nil {
			return nil
		}
	}
}

// Report takes in what came of a job, and waits until its caller has settled it. live is
// false where no caller waits for it any more.
func (d *Desk[W, R]) Report(ctx context.Context, id string, r R) (keep, live bool) {
	d.mu.Lock()
	d.asked = time.Now()
	delete(d.hand, id)
	var job *Job[W, R]
	for _, j := range d.jobs {
		if j.ID == id && !j.given {
			job, j.given = j, true
		}
	}
	d.mu.Unlock()
	if job == nil {
		return false, false
	}
	job.reported <- r
	select {
	case keep = <-job.kept:
		return keep, true
	case <-ctx.Done():
		return true, true // what is in doubt is not taken away
	}
}
