package admission

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
	"golang.org/x/time/rate"

	"github.com/ipamd/ipamd/api"
)

// Limits bounds what one peer may ask for. A peer is a process that may change
// leases, or a user who may only read, with all its processes: a reader gets no more
// by forking, and a person's ipamctl is not refused for what the runtime does as the
// same root.
type Limits struct {
	// InFlight is how many calls may be under way at once; a listing counts for
	// ListingCost of them, and a body for one more for each 64 KiB, since calls are
	// bounded for what they hold in memory. One call may always run. More than half
	// of the connections leaves others little room.
	InFlight int
	// Rate and ReaderRate are calls a second, by a peer that may change leases
	// and by one that may not. What was not used within a second may come at
	// once. 0 is no limit.
	Rate, ReaderRate int
	// Slot is for how long a call keeps others of its peer waiting, at the most.
	// 0 is 50 ms.
	Slot time.Duration
}

const (
	// ListingCost is what a listing counts for: an answer with all leases or many
	// changes.
	ListingCost = 64
	// answerBytes bounds what all peers have not read yet of large answers.
	answerBytes = 32 << 20
)

// A Holder is who the limits count. Without a pid it is all processes of the
// user.
type Holder struct {
	UID uint32
	PID int32
}

// A Control keeps what each holder is using. It forgets holders that use nothing. All
// methods are safe for concurrent use.
type Control struct {
	limits Limits
	log    *slog.Logger
	now    func() time.Time
	heavy  *semaphore.Weighted // steps of costly calls, of all holders

	mu      sync.Mutex
	of      map[Holder]*account
	clean   int         // forget when there are so many
	answers int         // bytes of large answers that are under way to all
	recent  [2]lastCall // of two holders
}

// An account is one holder's.
type account struct {
	running int
	answers int           // bytes of large answers that are under way to it
	rate    *rate.Limiter // nil: no limit
	slots   *semaphore.Weighted
	heavy   *semaphore.Weighted // the holder's next costly step
}

// New makes a control. Half of the processors are left to calls that are not costly.
func New(limits Limits, log *slog.Logger) *Control {
	if limits.Slot == 0 {
		limits.Slot = slotTime
	}
	return &Control{limits: limits, log: log, now: time.Now, of: make(map[Holder]*account),
		heavy: semaphore.NewWeighted(int64(max(1, runtime.GOMAXPROCS(0)/2)))}
}

// Enter books a call of that cost, or returns a [BusyError]. leave takes it
// back, once, when the call is over.
func (c *Control) Enter(p *Peer, cost int) (leave func(), err error) {
	now := c.now()
	c.mu.Lock()
	defer c.mu.Unlock()
	acc := c.account(p.Holder, now)
	cost = min(cost, c.limits.InFlight)
	if acc.running+cost > c.limits.InFlight {
		return nil, c.refuse(p, "in_flight", c.limits.InFlight, time.Second)
	}
	most := c.limits.Rate
	if !p.Role.Includes(api.Runtime) {
		most = c.limits.ReaderRate
	}
	if most > 0 && acc.rate == nil {
		acc.rate = rate.NewLimiter(rate.Limit(most), most)
	}
	if acc.rate != nil && !acc.rate.AllowN(now, 1) {
		missing := 1 - acc.rate.TokensAt(now)
		return nil, c.refuse(p, "rate", most, time.Duration(missing*float64(time.Second)/float64(most)).Round(time.Microsecond))
	}
	acc.running += cost
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		acc.running -= cost
	}, nil
}

// Answer books a large answer, or returns a [BusyError]; done takes it back, once.
// A peer has at most as much under way as it leaves to others, so that no peer,
// and no two, keep the answers from all; its first may take all that is left. One
// answer may always be under way, and one that must is counted and not refused.
func (c *Control) Answer(p *Peer, size int, must bool) (done func(), err error) {
	now := c.now()
	c.mu.Lock()
	defer c.mu.Unlock()
	acc := c.account(p.Holder, now)
	most := answerBytes - c.answers - size
	if acc.answers == 0 {
		most += size
	}
	if acc.answers+size > most && c.answers > 0 && !must {
		return nil, c.refuse(p, "answers", answerBytes, time.Second)
	}
	acc.answers, c.answers = acc.answers+size, c.answers+size
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		acc.answers, c.answers = acc.answers-size, c.answers-size
	}, nil
}

// account is for the caller that has the lock. An account stays while a call is booked on it; that
// of [Unidentified] always does, for readings that are made for all are no holder's call.
func (c *Control) account(h Holder, now time.Time) *account {
	acc := c.of[h]
	if acc != nil {
		return acc
	}
	if len(c.of) >= c.clean {
		maps.DeleteFunc(c.of, func(h Holder, acc *account) bool { return h != Unidentified && acc.idle(now) })
		c.clean = 2*len(c.of) + 64
	}
	acc = &account{slots: semaphore.NewWeighted(runAlone), heavy: semaphore.NewWeighted(1)}
	c.of[h] = acc
	return acc
}

func (a *account) idle(now time.Time) bool {
	return a.running == 0 && a.answers == 0 &&
		(a.rate == nil || a.rate.TokensAt(now) >= float64(a.rate.Burst()))
}

// refuse logs a refusal; the daemon's log holds back those that repeat.
func (c *Control) refuse(p *Peer, limit string, most int, after time.Duration) error {
	c.log.Warn("a peer asks for too much", "peer", p.Name, "limit", limit)
	return &BusyError{Limit: limit, Most: most, After: after}
}

// ErrBusy is every refusal of a peer that asks for more than its share.
var ErrBusy = errors.New("too many requests")

// A BusyError is [ErrBusy] with the limit that was met, and when to ask again.
type BusyError struct {
	Limit string // in_flight, rate or answers; any other one needs Text
	Most  int
	After time.Duration // when to ask again
	Text  string        // "": by the limit
}

func (e *BusyError) Error() string {
	switch {
	case e.Text != "":
		return fmt.Sprintf("%v: %s", ErrBusy, e.Text)
	case e.Limit == "rate":
		return fmt.Sprintf("%v: one peer may make %d calls a second", ErrBusy, e.Most)
	case e.Limit == "answers":
		return fmt.Sprintf("%v: at most %d bytes of large answers may wait to be read, and a peer has, beside its first, no more than it leaves to others; read those under way, or ask for less", ErrBusy, e.Most)
	}
	return fmt.Sprintf("%v: one peer may have %d calls under way at once, where a listing counts for %d", ErrBusy, e.Most, ListingCost)
}

func (e *BusyError) Unwrap() error { return ErrBusy }
