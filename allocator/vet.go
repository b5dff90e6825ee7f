package allocator

import (
	"context"
	"net/netip"
	"sync"
	"time"

	"github.com/ipamd/ipamd/internal/broadcast"
)

const (
	// vetFor is for how long a probe without an answer counts as an address that
	// is not in use. What answers at once is found by the probe that is sent when
	// an address is given. It bounds what probes cost while no address is asked
	// for: with a thousand ports a sixth of a percent of a processor.
	vetFor = 15 * time.Second
	// vetMost bounds the probes that run ahead under load. A broadcast costs
	// its sender about 1 µs a port.
	vetMost = 1024
	// vetDebounce is how long the vetter lets demand gather before it looks.
	vetDebounce = 5 * time.Millisecond
)

// A vetter probes the next candidates ahead of demand, so that a request
// finds an answer, or that none came for long enough, and waits for
// neither.
type vetter struct {
	Config
	wake chan struct{}

	mu    sync.Mutex
	ahead map[netip.Addr]probed
	taken int       // candidates taken since the last round
	round time.Time // of the last look
}

// A probed is when a candidate was first probed, and when last, without an answer since the first. Probing it
// again does not begin the wait for a slow answer anew.
type probed struct{ first, last time.Time }

func (k probed) silent(window time.Duration) bool {
	return !k.first.IsZero() && time.Since(k.first) >= window && time.Since(k.last) < vetFor
}

func newVetter(cfg Config) *vetter {
	return &vetter{Config: cfg, wake: make(chan struct{}, 1), ahead: make(map[netip.Addr]probed)}
}

// take probes a candidate, and reports whether it was also probed ahead: long
// enough ago for a slow answer, and not too long.
//
// It is probed even then, for the earlier probe says nothing about what came up since.
// The answer from behind a veth, however many bridges away, is there as soon as the
// probe is sent; that of a virtual machine may come while the lease is committed.
// Both are read before the lease is answered.
func (v *vetter) take(ctx context.Context, a netip.Addr) bool {
	v.mu.Lock()
	was := v.ahead[a]
	delete(v.ahead, a)
	v.taken++
	low := v.taken >= max(v.ProbeAhead/2, 1)
	v.mu.Unlock()
	if low { // half of what is probed ahead at rest is used up
		broadcast.Wake(v.wake)
	}
	return v.probe(ctx, a) && was.silent(v.ProbeWindow) && !v.Prober.MissedSince(was.first)
}

// wait probes an address that a request wishes for, and gives it the time that
// a slow answer takes. It reports whether the silence counts.
func (v *vetter) wait(ctx context.Context, a netip.Addr, answered func() bool) bool {
	began := time.Now()
	sent := v.probe(ctx, a)
	over := time.NewTimer(v.ProbeWindow)
	defer over.Stop()
	for {
		changed := v.Board.Changed()
		if answered() {
			return sent
		}
		select {
		case <-changed:
		case <-over.C:
			return sent && !v.Prober.MissedSince(began)
		case <-ctx.Done():
			return false
		}
	}
}

// probe reports whether the question was sent. One that could not be leaves the
// candidate unprobed, which the reply says; the other witnesses still speak.
func (v *vetter) probe(ctx context.Context, a netip.Addr) bool {
	err := v.Prober.Probe(ctx, a)
	if err != nil {
		v.Log.Debug("probe was not sent", "addr", a, "err", err)
	}
	return err == nil
}

// run keeps the next candidates probed until ctx ends.
func (v *vetter) run(ctx context.Context) error {
	look := time.NewTimer(0)
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-v.wake:
			look.Reset(vetDebounce)
			select {
			case <-ctx.Done():
				return nil
			case <-look.C:
			}
		case <-look.C:
		}
		v.look(ctx)
		look.Reset(vetFor / 2)
	}
}

// look probes the upcoming candidates that are not probed yet: ProbeAhead, and
// twice as many as were recently taken in the time that a probe needs.
func (v *vetter) look(ctx context.Context) {
	v.mu.Lock()
	since := max(time.Since(v.round), vetDebounce)
	demand := 2 * float64(v.taken) * float64(v.ProbeWindow+vetDebounce) / float64(since)
	ahead := min(v.ProbeAhead+int(demand), vetMost)
	v.taken, v.round = 0, time.Now()
	v.mu.Unlock()
	for _, p := range v.Book.Pools() {
		for _, a := range v.Book.Upcoming(p.UID, ahead, v.Policy) {
			if !v.due(a) {
				continue
			}
			if err := v.Prober.Probe(ctx, a); err != nil {
				v.Log.Debug("probe was not sent", "addr", a, "err", err)
				break
			}
			v.note(a)
		}
	}
	v.forget()
}

// due reports whether a candidate is to be probed, or probed again: half of vetFor is
// over, or its answer may have been lost.
func (v *vetter) due(a netip.Addr) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	k := v.ahead[a]
	age := time.Since(k.last)
	return age >= vetFor/2 || age >= v.ProbeWindow && v.Prober.MissedSince(k.first)
}

func (v *vetter) note(a netip.Addr) {
	v.mu.Lock()
	defer v.mu.Unlock()
	k := probed{time.Now(), time.Now()}
	if was := v.ahead[a]; was.silent(0) && !v.Prober.MissedSince(was.first) {
		k.first = was.first
	}
	v.ahead[a] = k
}

func (v *vetter) forget() {
	v.mu.Lock()
	defer v.mu.Unlock()
	for a, k := range v.ahead {
		if time.Since(k.last) >= vetFor {
			delete(v.ahead, a)
		}
	}
}
