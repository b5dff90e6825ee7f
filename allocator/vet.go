package allocator

import (
	"context"
	"net/netip"
	"sync"
	"time"

	"github.com/ipamd/ipamd/internal/broadcast"
)

const (
	// vetFor is how long the silence after a probe counts as that of an answer
	// that takes its time. What answers at once is probed when an address is
	// given. It bounds what the questions cost at rest: with a thousand ports
	// a sixth of a percent of a processor.
	vetFor = 15 * time.Second
	// vetMost bounds the probes that run ahead under load. A broadcast costs
	// its sender about 1 µs a port.
	vetMost = 1024
	// vetDebounce is how long the vetter lets demand gather before it looks.
	vetDebounce = 5 * time.Millisecond
)

// A vetter probes the next candidates ahead of demand, so that a request
// finds an answer, or a silence that lasted long enough, and waits for
// neither.
type vetter struct {
	Config
	wake chan struct{}

	mu    sync.Mutex
	ahead map[netip.Addr]probed
	taken int       // candidates taken since the last round
	round time.Time // of the last look
}

// A probed is when a candidate was first probed, and when last. Probing again
// does not take back the silence since the first.
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
// It is probed even then, for a silence says nothing of what came since. Behind a
// veth, however many bridges away, the answer is there when the question was sent;
// that of a virtual machine may come while the lease is committed. Both are read
// before the lease is answered.
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

// look probes the upcoming candidates that are not probed yet: those at
// rest, and twice as many as were taken recently in the time that a question
// needs.
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

// due reports whether a candidate is to be probed, or probed again: half of the time
// that a silence counts is over, or its answer may have been lost.
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

// reportedMost bounds what is remembered of addresses in use beyond the
// quarantine's share.
const reportedMost = 4096

// reported remembers the addresses that were reported already.
type reported struct {
	mu   sync.Mutex
	seen map[netip.Addr]struct{}
}

// add reports whether the address is new.
func (s *reported) add(a netip.Addr) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, old := s.seen[a]; old {
		return false
	}
	if s.seen == nil || len(s.seen) >= reportedMost {
		s.seen = make(map[netip.Addr]struct{})
	}
	s.seen[a] = struct{}{}
	return true
}
