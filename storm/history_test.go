package storm_test

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ipamd/ipamd/api"
)

// A moment is the time since the storm began, by the test's own monotonic
// clock, which is never stepped.
type moment = time.Duration

// never is the end of what has not ended.
const never = moment(1<<63 - 1)

// A grant is one answer to an allocate.
type grant struct {
	asked, answered moment
	addr            netip.Addr
	lease, uid      string
	existing, early bool
}

// A hold is the time in which an actor counts on a lease: from the answer to
// the first thing it does that may end it.
type hold struct {
	from, to   moment
	asked      moment // from when on its time to bind may run
	bindBy     moment // it may end then, being unbound; never once it is bound
	addr       netip.Addr
	lease, uid string
}

// A life is the time in which an address is surely set in a namespace: from
// the return of the call that set it to the beginning of the one that takes it
// away. Without a lease it was added by hand.
type life struct {
	from, to   moment
	addr       netip.Addr
	netns      string
	lease, uid string
	bound      bool   // the bind was acknowledged
	since      moment // when
}

// A listing is one answer to a list of leases.
type listing struct {
	asked, answered moment
	open            map[string]netip.Addr    // by lease
	states          map[netip.Addr]api.State // of all that are not free
}

// A leap is what another boot's uptime says has passed, and has not: it shortens a
// wait. A clock that is stepped within a boot shortens none (F20).
type leap struct {
	from, to moment // between ipamd's death and its next start; never to while it is about to start
	by       time.Duration
}

// A history is what a storm leaves to be judged.
type history struct {
	cooldown, cooldownMin time.Duration

	grants   []grant
	holds    []*hold
	lives    []*life
	listings []listing
	leaps    []*leap
	gaps     []*gap
	sent     map[uint32]*sent // by the number in the frame
	readings []reading
	cooled   []cooled
	odd      []string // answers that nothing explains
}

// A recorder writes a history. Its methods are safe for concurrent use.
type recorder struct {
	start time.Time
	mu    sync.Mutex
	h     history
	count map[string]int   // of what was done and answered, by name
	errs  map[string]error // the last of each kind that is to be expected
}

func newRecorder(cooldown, cooldownMin time.Duration) *recorder {
	return &recorder{start: time.Now(), h: history{cooldown: cooldown, cooldownMin: cooldownMin, sent: make(map[uint32]*sent)}, count: make(map[string]int), errs: make(map[string]error)}
}

func (r *recorder) now() moment { return time.Since(r.start) }

func (r *recorder) add(change func(*history)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change(&r.h)
}

func (r *recorder) counted(what string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.count[what]++
}

// did is how often something was counted.
func (r *recorder) did(what string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.count[what]
}

// didAny is how often all was counted whose name begins so.
func (r *recorder) didAny(kind string) (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for what, times := range r.count {
		if strings.HasPrefix(what, kind) {
			n += times
		}
	}
	return n
}

// last keeps an error that a fault explains, to be shown beside a failure.
func (r *recorder) last(what string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.errs[what] = err
}

func (r *recorder) strange(format string, args ...any) {
	at := r.now().Round(time.Millisecond)
	r.add(func(h *history) { h.odd = append(h.odd, fmt.Sprintf("at %v: ", at)+fmt.Sprintf(format, args...)) })
}

func (r *recorder) holds(h *hold) *hold {
	r.add(func(all *history) { all.holds = append(all.holds, h) })
	return h
}

// lets ends a hold; the first end counts.
func (r *recorder) lets(h *hold) {
	at := r.now()
	r.add(func(*history) { h.to = min(h.to, at) })
}

func (r *recorder) lives(l *life) *life {
	r.add(func(all *history) { all.lives = append(all.lives, l) })
	return l
}

// dies ends a life; the first end counts.
func (r *recorder) dies(l *life) {
	at := r.now()
	r.add(func(*history) { l.to = min(l.to, at) })
}

// overdue reports that a hold may have ended because it was not bound in time.
func (r *recorder) overdue(o *hold) bool {
	at := r.now()
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.h.end(o) < at
}

// living lists who lives now.
func (r *recorder) living() []life {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []life
	for _, l := range r.h.lives {
		if l.to == never {
			out = append(out, *l)
		}
	}
	return out
}

// missed lists which of these kinds did not happen. A kind is how a name begins.
func (r *recorder) missed(kinds ...string) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.DeleteFunc(kinds, func(kind string) bool {
		for what := range r.count {
			if strings.HasPrefix(what, kind) {
				return true
			}
		}
		return false
	})
}

// counts names what was done, in the order of the names.
func (r *recorder) counts() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := ""
	for _, what := range slices.Sorted(maps.Keys(r.count)) {
		out += fmt.Sprintf("  %6d %s\n", r.count[what], what)
	}
	return out
}
