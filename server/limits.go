package server

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/netdb"
)

// Limits bounds what one peer may ask for. A peer is a process that may change
// leases, or a user who may only read, with all its processes: who is no more
// than a reader gets no more by forking, and a person's ipamctl is not refused
// for what the runtime does as the same root.
type Limits struct {
	// InFlight is how many calls may be under way at once; a listing counts for 64 of
	// them, and a body for one more for each 64 KiB, since calls are bounded for
	// what they hold in memory. One call may always run. More than half of
	// Config.MaxConns leaves others little room.
	InFlight int
	// Rate and ReaderRate are calls a second, by a peer that may change leases
	// and by one that may not. What was not used within a second may come at
	// once. 0 is no limit.
	Rate, ReaderRate int
	// Turn is for how long a call keeps others of its peer waiting, at the most.
	// 0 is 50 ms.
	Turn time.Duration
}

const (
	callBytes = 64 << 10 // of a body, that count as a call
	// answerBytes bounds what all peers have not read yet of answers, beyond
	// smallAnswer each, which the kernel mostly takes at once.
	answerBytes = 32 << 20
	smallAnswer = 64 << 10
	listingCost = 64 // an answer with all leases or many changes
	burst       = time.Second
	tellEvery   = time.Minute // of the log, about one peer
	refusedWait = 200 * time.Millisecond
)

// mostConns is how many connections may be open: the book, the kernel's sockets
// and the runtime's need files as well.
func (s *Server) mostConns() int {
	var files unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &files); err != nil {
		return s.cfg.MaxConns // this process has no limit that it could know
	}
	most := int(min(files.Cur/2, math.MaxInt32))
	if most >= s.cfg.MaxConns {
		return s.cfg.MaxConns
	}
	s.cfg.Log.Warn("fewer connections than configured: the process may open too few files",
		"connections", most, "configured", s.cfg.MaxConns, "files", files.Cur, "next", "raise LimitNOFILE, or lower socket.max_connections")
	return max(most, 1)
}

// A holder is who the limits count. Without a pid it is all processes of the
// user.
type holder struct {
	uid uint32
	pid int32
}

// An accounts keeps what each holder is using. It forgets holders that use
// nothing: what is left are those of the last seconds.
type accounts struct {
	limits Limits
	log    *slog.Logger
	now    func() time.Time

	mu      sync.Mutex
	of      map[holder]*account
	clean   int // forget when there are so many
	answers int // bytes of large answers that are under way to all
}

type account struct {
	running int
	answers int       // bytes of large answers that are under way to it
	paid    time.Time // calls up to now are paid for at the rate until then
	refused int       // since it was told
	told    time.Time
}

func newAccounts(limits Limits, log *slog.Logger) *accounts {
	return &accounts{limits: limits, log: log, now: time.Now, of: make(map[holder]*account)}
}

// enter books a call of that cost, or returns a busyError. leave takes it
// back, once, when the call is over.
func (a *accounts) enter(p *peer, cost int) (leave func(), err error) {
	now := a.now()
	a.mu.Lock()
	defer a.mu.Unlock()
	acc := a.account(p.holder, now)
	cost = min(cost, a.limits.InFlight)
	if acc.running+cost > a.limits.InFlight {
		a.tell(p, acc, "in_flight", now)
		return nil, &busyError{limit: "in_flight", most: a.limits.InFlight, after: time.Second}
	}
	rate := a.limits.Rate
	if !p.role.Includes(api.Runtime) {
		rate = a.limits.ReaderRate
	}
	if rate > 0 {
		if acc.paid.Before(now) {
			acc.paid = now
		}
		next := acc.paid.Add(time.Second / time.Duration(rate))
		if ahead := next.Sub(now); ahead > burst {
			a.tell(p, acc, "rate", now)
			return nil, &busyError{limit: "rate", most: rate, after: ahead - burst}
		}
		acc.paid = next
	}
	acc.running += cost
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		acc.running -= cost
	}, nil
}

// answer books a large answer, or returns a busyError; give takes it back, once.
// A peer has at most as much under way as it leaves to others, so that no peer,
// and no two, keep the answers from all; its first may take all that is left. One
// answer may always be under way, and one that must is counted and not refused.
func (a *accounts) answer(p *peer, size int, must bool) (give func(), err error) {
	now := a.now()
	a.mu.Lock()
	defer a.mu.Unlock()
	acc := a.account(p.holder, now)
	most := answerBytes - a.answers - size
	if acc.answers == 0 {
		most += size
	}
	if acc.answers+size > most && a.answers > 0 && !must {
		a.tell(p, acc, "answers", now)
		return nil, &busyError{limit: "answers", most: answerBytes, after: time.Second}
	}
	acc.answers, a.answers = acc.answers+size, a.answers+size
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		acc.answers, a.answers = acc.answers-size, a.answers-size
	}, nil
}

func (a *accounts) account(h holder, now time.Time) *account {
	acc := a.of[h]
	if acc != nil {
		return acc
	}
	if len(a.of) >= a.clean {
		for h, acc := range a.of {
			if acc.running == 0 && acc.answers == 0 && !acc.paid.After(now) && now.Sub(acc.told) > tellEvery {
				delete(a.of, h)
			}
		}
		a.clean = 2*len(a.of) + 64
	}
	acc = new(account)
	a.of[h] = acc
	return acc
}

// tell logs a refusal, at most once a minute for each holder.
func (a *accounts) tell(p *peer, acc *account, limit string, now time.Time) {
	acc.refused++
	if now.Sub(acc.told) > tellEvery {
		a.log.Warn("a peer asks for too much", "peer", p.name, "limit", limit, "refused", acc.refused)
		acc.told, acc.refused = now, 0
	}
}

// linger lets a refused call wait before its answer: a peer that asks again at
// once, whatever it is answered, would otherwise have the processors that its rate
// leaves to others. Meanwhile its connection is as spare as one without a call.
func (s *Server) linger(c *call) {
	if gc := connOf(c.r); gc != nil {
		gc.over()
	}
	wait := time.NewTimer(refusedWait)
	defer wait.Stop()
	select {
	case <-wait.C:
	case <-c.r.Context().Done():
	case <-c.draining():
	}
}

// cost is what a call counts for while it runs.
func cost(c *call) int {
	n := 1
	if c.end.Verb == api.VerbLeases || c.end.Verb == api.VerbChanges {
		n = listingCost
	}
	if c.r.ContentLength < 0 { // in chunks
		return n + bodyBytes/callBytes
	}
	return n + int(min(c.r.ContentLength, bodyBytes)/callBytes)
}

var errBusy = errors.New("too many requests")

// A busyError is a peer that asks for more than its share.
type busyError struct {
	limit string // in_flight, rate, answers or tombstones
	most  int
	after time.Duration // when to ask again

	released []api.Lease // by a cancel for which no tombstone has room
}

func (e *busyError) Error() string {
	switch e.limit {
	case "rate":
		return fmt.Sprintf("%v: one peer may make %d calls a second", errBusy, e.most)
	case "tombstones":
		return fmt.Sprintf("%v: %v, %d at the most; %d open leases are released all the same", errBusy, netdb.ErrTombstones, e.most, len(e.released))
	case "answers":
		return fmt.Sprintf("%v: of all answers %d bytes may be unread, and of one peer's no more than are left; read those under way, or ask for less", errBusy, e.most)
	}
	return fmt.Sprintf("%v: one peer may have %d calls under way at once, where a listing counts for %d", errBusy, e.most, listingCost)
}

func (e *busyError) Unwrap() error { return errBusy }

// retryAfter writes the header that HTTP has for it, in whole seconds and so
// never sooner than the error says (RFC 9110, section 10.2.3).
func (e *busyError) retryAfter(h http.Header) {
	h.Set("Retry-After", fmt.Sprint(int((e.after+time.Second-1)/time.Second)))
}
