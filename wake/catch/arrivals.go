package catch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"time"

	"github.com/ipamd/ipamd/ipam"
)

// An arrival is why a lease is to be woken.
type arrival struct {
	cause    ipam.Cause
	evidence json.RawMessage
	since    ipam.Stamp // of the pause that it came in: it wakes from no later one

	// Of one that could not begin a flight; under lateMu.
	next time.Time     // when that is tried again
	rest time.Duration // and how long that was put off
}

// arrived looks again at whose address a packet went to.
func (c *Catcher) arrived(ctx context.Context, frame []byte) {
	p, err := parse(frame)
	if err != nil {
		c.malformed.Add(1)
		return
	}
	l, ok := c.cfg.Book.At(p.Dest)
	if !ok || l.State != ipam.Paused {
		return
	}
	s := c.cfg.Book.Sleep(l.ID)
	if s == nil || s.Wake == nil {
		return
	}
	why := &arrival{cause: ipam.Cause{By: ipam.ByTraffic, Source: p.Source, Port: p.Port, Protocol: p.Protocol, Rule: s.Wake.String()},
		evidence: evidence(p, l, s.Wake), since: l.Since}
	if !s.Flight.Open() && !c.rests(l) && c.wake(ctx, l.ID, why) == 0 {
		return
	}
	c.suppressed.Add(1)
	c.lateMu.Lock()
	known := c.late[l.ID]
	first := known == nil || !known.since.Same(why.since)
	if !first && why.rest == 0 {
		why.next, why.rest = known.next, known.rest
	}
	c.late[l.ID] = why
	c.lateMu.Unlock()
	if first {
		c.again.Send()
	}
}

// rests reports that a wake of a lease was put off a moment ago.
func (c *Catcher) rests(l *ipam.Lease) bool {
	c.lateMu.Lock()
	defer c.lateMu.Unlock()
	known := c.late[l.ID]
	return known != nil && known.since.Same(l.Since) && time.Now().Before(known.next)
}

// wakeLate wakes by what came when no flight could begin, or during one that failed, and returns
// how long until some of it is to be tried again, 0 for never.
func (c *Catcher) wakeLate(ctx context.Context) (next time.Duration) {
	c.lateMu.Lock()
	late := maps.Clone(c.late)
	c.lateMu.Unlock()
	for id, why := range late {
		if wait := c.wakeOne(ctx, id, why); wait > 0 && (next == 0 || wait < next) {
			next = wait
		}
	}
	return next
}

// wakeOne is wakeLate of one lease. What came in an earlier pause, or to one that does not sleep any
// more, is forgotten. A flight that is under way is waited for: its end is a change of the lease.
func (c *Catcher) wakeOne(ctx context.Context, id string, why *arrival) (next time.Duration) {
	l, err := c.cfg.Book.Lease(id)
	if s := c.cfg.Book.Sleep(id); err == nil && l.State == ipam.Paused && l.Since.Same(why.since) && s != nil && s.Wake != nil {
		if s.Flight.Open() {
			return 0
		}
		c.lateMu.Lock()
		next = time.Until(why.next)
		c.lateMu.Unlock()
		if next <= 0 {
			next = c.wake(ctx, id, why)
		}
		if next > 0 {
			return next
		}
	}
	c.lateMu.Lock()
	defer c.lateMu.Unlock()
	if c.late[id] == why { // else more came
		delete(c.late, id)
	}
	return 0
}

// wake begins a flight, or puts that off and returns for how long: what failed a moment ago rests,
// and a book that takes nothing is not asked as fast as it refuses.
func (c *Catcher) wake(ctx context.Context, lease string, why *arrival) (next time.Duration) {
	_, _, err := c.cfg.Waker.Wake(ctx, ipam.Who{Actor: ipam.ByReconciler}, lease, why.cause, why.evidence)
	if err == nil || errors.Is(err, ipam.ErrGone) || errors.Is(err, ipam.ErrState) {
		return 0
	}
	c.lateMu.Lock()
	defer c.lateMu.Unlock()
	rest := retry
	if !errors.Is(err, ipam.ErrBackOff) {
		rest = min(max(retry, 2*why.rest), mostRest)
		if ctx.Err() == nil {
			c.cfg.Log.Warn("traffic could not begin a wake", "lease", lease, "err", err)
		}
	}
	why.next, why.rest = time.Now().Add(rest), rest
	return rest
}

// evidence is what the history has of a wake by a packet.
func evidence(p Packet, l *ipam.Lease, met *ipam.WakePolicy) json.RawMessage {
	to := string(p.Protocol)
	if p.Port != 0 {
		to += fmt.Sprintf(" to port %d", p.Port)
	}
	return seen(p.Source, l.HostInterface, to, met)
}

// mostRule bounds what is said of a policy, which may have many sources and ports; the flight has all.
const mostRule = 200

func seen(addr netip.Addr, port, what string, met *ipam.WakePolicy) json.RawMessage {
	rule := met.String()
	if len(rule) > mostRule {
		rule = rule[:mostRule] + "..."
	}
	b, err := json.Marshal([]map[string]any{{"address": addr, "witness": "traffic", "at": time.Now().UTC(), "port": port, "note": what + ", by the rule " + rule}})
	if err != nil {
		panic(err) // strings and times always marshal
	}
	return b
}
