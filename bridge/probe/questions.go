package probe

import (
	"net/netip"
	"sync"
	"time"
)

// answerWithin is how long after a question an answer still counts. No caller
// waits that long; it only keeps out answers to questions that were never asked.
const answerWithin = time.Minute

// mostQuestions bounds each generation. At the rate that fills it, it lasts for
// longer than any answer takes.
const mostQuestions = 1 << 16

// questions remembers what was asked recently, in two generations: one that
// grows, and the one before it, which is dropped as a whole. To walk over all
// of them at each question takes a sixth of a busy daemon's time.
type questions struct {
	mu         sync.Mutex
	young, old map[netip.Addr]time.Time
	turned     time.Time // when young began
}

func (q *questions) note(addr netip.Addr) {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := time.Now()
	if q.young == nil || now.Sub(q.turned) > answerWithin || len(q.young) >= mostQuestions {
		q.young, q.old, q.turned = make(map[netip.Addr]time.Time), q.young, now
	}
	q.young[addr] = now
}

// recent reports whether addr was asked for so recently that an answer counts.
func (q *questions) recent(addr netip.Addr) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	at, ok := q.young[addr]
	if !ok {
		at, ok = q.old[addr]
	}
	return ok && time.Since(at) <= answerWithin
}
