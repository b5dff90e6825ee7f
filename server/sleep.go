package server

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/ipam"
)

// Sleeper pauses sandboxes and has them woken; *wake.Flights is one.
type Sleeper interface {
	Pause(ctx context.Context, who ipam.Who, id string, ifRev int64, how ipam.Sleep) (*ipam.Lease, error)
	// Resume records that a sandbox runs again.
	Resume(ctx context.Context, who ipam.Who, id string, ifRev int64) (*ipam.Lease, error)
	// Wake begins a flight or joins one; it is nil for a lease that is bound.
	Wake(ctx context.Context, who ipam.Who, id string, cause ipam.Cause, evidence json.RawMessage) (*ipam.Lease, *ipam.Flight, error)
	// Await waits for the end of a flight, or of ctx.
	Await(ctx context.Context, id, flight string) (*ipam.Lease, error)
	Acknowledge(ctx context.Context, who ipam.Who, id, flight string, working bool, r ipam.FlightResult, detail string) (*ipam.Lease, error)
	// Subscribed says that a subscriber follows the changes from now on.
	Subscribed()
}

func (h *sleepers) pause(c *call) (int, any, error) {
	var ask api.PauseRequest
	return h.onLease(c, &ask, &ask.IfRevision, func(id string, ifRev int64) (*ipam.Lease, error) {
		if err := h.ofSandbox(id); err != nil {
			return nil, err
		}
		who := c.who(ipam.ByClient, "paused")
		if ask.Mode == "" {
			switch {
			case ask.Wake != nil:
				return nil, field("mode", "is missing: wake wants freeze or hibernate")
			case ask.Do:
				return nil, field("mode", "is missing: do wants freeze")
			}
			return h.book.Pause(c.ctx, who, id, ifRev)
		}
		how := ipam.Sleep{Mode: ipam.SleepMode(ask.Mode), Do: ask.Do}
		if ask.Wake != nil {
			policy, err := wakePolicy(ask.Wake)
			if err != nil {
				return nil, err
			}
			how.Wake = policy
		}
		return h.sleeper.Pause(c.ctx, who, id, ifRev, how)
	})
}

func (h *sleepers) resume(c *call) (int, any, error) {
	var ask api.PauseRequest
	return h.onLease(c, &ask, &ask.IfRevision, func(id string, ifRev int64) (*ipam.Lease, error) {
		if ask.Mode != "" || ask.Do || ask.Wake != nil {
			return nil, field("mode", "is of a pause: a resume has only if_revision")
		}
		return h.sleeper.Resume(c.ctx, c.who(ipam.ByClient, "resumed"), id, ifRev)
	})
}

// wakePolicy reads a policy; what cannot be in one is the book's to say.
func wakePolicy(p *api.WakePolicy) (*ipam.WakePolicy, error) {
	w := new(ipam.WakePolicy)
	for i, text := range p.Sources {
		name := fmt.Sprintf("wake.sources[%d]", i)
		if prefix, err := netip.ParsePrefix(text); err == nil {
			w.Sources = append(w.Sources, prefix)
			continue
		}
		a, err := address(name, text)
		if err != nil {
			return nil, err
		}
		w.Sources = append(w.Sources, netip.PrefixFrom(a, a.BitLen()))
	}
	for i, text := range p.Ports {
		r, err := portRange(fmt.Sprintf("wake.ports[%d]", i), text)
		if err != nil {
			return nil, err
		}
		w.Ports = append(w.Ports, r)
	}
	for _, name := range p.Protocols {
		w.Protocols = append(w.Protocols, ipam.Protocol(name))
	}
	var err error
	if w.Wait, err = duration("wake.wait", p.Wait); err != nil {
		return nil, err
	}
	w.RepauseAfter, err = duration("wake.repause_after", p.RepauseAfter)
	return w, err
}

func portRange(name, text string) (r ipam.PortRange, err error) {
	first, last, is := strings.Cut(text, "-")
	if !is {
		last = first
	}
	for _, end := range []struct {
		text string
		into *uint16
	}{{first, &r.First}, {last, &r.Last}} {
		n, err := strconv.ParseUint(end.text, 10, 16)
		if err != nil {
			return r, field(name, "%.40q is neither a port like 80 nor a range like 8000-8100", text)
		}
		*end.into = uint16(n)
	}
	return r, nil
}

// wake answers 200 with a lease that is bound, and 202 with its flight while it is not.
func (h *sleepers) wake(c *call) (int, any, error) {
	id, err := c.id()
	if err != nil {
		return 0, nil, err
	}
	var ask api.WakeRequest
	if err := c.body(&ask); err != nil {
		return 0, nil, err
	}
	wait, err := patience(ask.Wait)
	if err != nil {
		return 0, nil, err
	}
	ifRev, err := c.seenAt(0)
	if err != nil {
		return 0, nil, err
	}
	if ifRev != 0 {
		return 0, nil, field("If-Match", "is of no use: a wake is about the lease as it is")
	}
	l, flight, err := h.sleeper.Wake(c.ctx, c.who(ipam.ByClient, "wake_requested"), id, ipam.Cause{By: ipam.ByCall}, nil)
	if err != nil {
		return 0, nil, err
	}
	if flight == nil {
		return http.StatusOK, h.leaseReply(c, l, nil), nil
	}
	if wait > 0 {
		if l, err = h.awaitFlight(c, id, flight.ID, wait); err != nil {
			return 0, nil, err
		}
		return http.StatusOK, h.leaseReply(c, l, nil), nil
	}
	return http.StatusAccepted, h.leaseReply(c, l, nil), nil
}

// awaitFlight waits without a slot: callers that wait take no slot of those that call.
func (h *sleepers) awaitFlight(c *call, id, flight string, wait time.Duration) (*ipam.Lease, error) {
	c.endSlot()
	ctx, cancel := context.WithTimeout(c.r.Context(), wait)
	defer cancel()
	defer context.AfterFunc(c.stopping(), cancel)()
	l, err := h.sleeper.Await(ctx, id, flight)
	if gone := c.r.Context().Err(); gone != nil {
		return nil, gone
	}
	return l, err
}

// wakeAck takes in the runtime's word on a flight.
func (h *sleepers) wakeAck(c *call) (int, any, error) {
	var ask api.AckRequest
	none := int64(0)
	return h.onLease(c, &ask, &none, func(id string, _ int64) (*ipam.Lease, error) {
		var result ipam.FlightResult
		switch ask.Outcome {
		case "waking":
		case "woken":
			result = ipam.Woken
		case "refused":
			result = ipam.Refused
		default:
			return nil, field("outcome", "%.40q is none of waking, woken, refused", ask.Outcome)
		}
		if ask.Flight == "" {
			return nil, field("flight", "is missing: the lease has it, in sleep.flight.id")
		}
		if len(ask.Detail) > ipam.MaxNote {
			return nil, field("detail", "is longer than %d bytes", ipam.MaxNote)
		}
		return h.sleeper.Acknowledge(c.ctx, c.who(ipam.ByClient, ""), id, ask.Flight, result == "", result, ask.Detail)
	})
}

// sleepOf is how a lease is paused and woken, as the socket has it.
func sleepOf(s *ipam.Sleep) *api.Sleep {
	if s == nil {
		return nil
	}
	out := &api.Sleep{Mode: api.SleepMode(s.Mode), Do: s.Do}
	if w := s.Wake; w != nil {
		out.Wake = &api.WakePolicy{Wait: api.LastingIfAny(w.Wait), RepauseAfter: api.LastingIfAny(w.RepauseAfter)}
		for _, p := range w.Sources {
			text := p.String()
			if p.IsSingleIP() {
				text = p.Addr().String()
			}
			out.Wake.Sources = append(out.Wake.Sources, text)
		}
		for _, r := range w.Ports {
			out.Wake.Ports = append(out.Wake.Ports, r.String())
		}
		for _, p := range w.Wakes() {
			out.Wake.Protocols = append(out.Wake.Protocols, string(p))
		}
	}
	if f := s.Flight; f != nil {
		out.Flight = &api.Flight{ID: f.ID, Phase: string(f.Phase), Begun: f.Begun.Wall.UTC(), Within: api.Lasting(f.Within), Attempts: f.Attempts,
			Result: string(f.Result), Detail: f.Detail,
			Cause: api.Cause{By: f.Cause.By, Source: ipam.AddrText(f.Cause.Source), Port: int(f.Cause.Port), Protocol: string(f.Cause.Protocol), Rule: f.Cause.Rule}}
		if !f.Open() {
			end := f.End.Wall.UTC()
			out.Flight.Ended = &end
		}
	}
	return out
}
