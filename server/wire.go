package server

import (
	"cmp"
	"encoding/json"
	"errors"

	"github.com/ipamd/ipamd/allocator"
	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/ipam"
)

// This file spells the rooms' values as the socket does. A list that the wire
// requires is never null.

// shown is a lease with the prefix length that its interface needs: its pool's.
func (h *view) shown(l *ipam.Lease) api.Lease {
	for _, p := range h.book.Pools() {
		if p.UID == l.PoolUID {
			return h.wire(l, p.Prefix.Bits())
		}
	}
	return h.wire(l, l.Addr.BitLen())
}

// poolNow is a pool as the book has it by now: its gateway may have moved since it was read. One
// that was removed is as it was.
func (h *view) poolNow(was *ipam.Pool) *ipam.Pool {
	for _, p := range h.book.Pools() {
		if p.UID == was.UID {
			return p
		}
	}
	return was
}

// wire is a lease as the socket has it, with the name of a link that is leased to its
// interface; one that cools has none.
func (h *view) wire(l *ipam.Lease, bits int) api.Lease {
	w := api.Lease{
		ID: l.ID, Address: l.Addr.String(), PrefixLen: bits, PrefixLength: l.PrefixLen, Pool: l.Pool, PoolUID: l.PoolUID,
		State: api.State(l.State), Sandbox: l.Sandbox, UID: l.UID, Interface: l.Interface, Attempt: l.Attempt,
		Revision: l.Rev, Created: l.Created.Wall.UTC(), Since: l.Since.Wall.UTC(),
		Netns: l.Netns, HostInterface: l.HostInterface, MAC: l.MAC,
		HostIndex: l.Plug.Index, NetnsInode: l.Plug.Inode,
		Labels: l.Labels, Reason: l.Reason, Evidence: evidence(l.Evidence), Hold: l.Hold, Conflict: conflict(l), Outside: h.book.Outside(l),
	}
	if l.UID != "" && l.State != ipam.Cooling && l.State != ipam.Free {
		w.HostInterfaceName = h.book.HostName(l.UID, l.Interface)
	}
	if l.State == ipam.Reserved && l.BindWithin > 0 {
		by := w.Since.Add(l.BindWithin)
		w.BindBy = &by
	}
	if l.State.Open() {
		w.Sleep = sleepOf(h.book.Sleep(l.ID))
		if at, known := h.lastTraffic(l); known {
			at = at.Round(0).UTC()
			w.LastTraffic = &at
		}
	}
	for _, c := range l.Containers {
		w.Containers = append(w.Containers, api.Container(c))
	}
	return w
}

// evidence reads what the book keeps: census sightings as JSON. What cannot
// be read was written by no ipamd, and is shown as such rather than hidden.
func evidence(raw json.RawMessage) []api.Sighting {
	if len(raw) == 0 {
		return nil
	}
	var seen []api.Sighting
	if err := json.Unmarshal(raw, &seen); err != nil {
		return []api.Sighting{{Note: "evidence that cannot be read: " + string(raw)}}
	}
	return seen
}

func sightings(seen []census.Sighting) []api.Sighting {
	out := make([]api.Sighting, len(seen))
	for i, s := range seen {
		out[i] = api.Sighting{Address: s.Addr.String(), Witness: string(s.Witness), At: s.At.UTC(),
			Bridge: s.Bridge, Port: s.Port, Netns: s.Netns.String(), MAC: s.MAC, Namespace: s.Namespace,
			Container: s.Container, Sandbox: s.Sandbox, UID: s.UID, LeaseID: s.LeaseID, Task: s.Task, Note: s.Note}
	}
	return out
}

func silences(silent []census.Silence) []api.Silence {
	var out []api.Silence
	for _, s := range silent {
		out = append(out, api.Silence{Witness: string(s.Witness), Reason: s.Reason, Since: s.Since.UTC()})
	}
	return out
}

func skipped(all []allocator.Skipped) []api.Skipped {
	var out []api.Skipped
	for _, s := range all {
		out = append(out, api.Skipped{Address: s.Addr.String(), Evidence: sightings(s.Seen)})
	}
	return out
}

func changes(all []ipam.Change) []api.Change {
	out := make([]api.Change, len(all))
	for i, c := range all {
		out[i] = changeOf(c)
	}
	return out
}

func changeOf(c ipam.Change) api.Change {
	if c.Subject == ipam.OfPool {
		return poolChangeOf(c)
	}
	return moveOf(c)
}

// poolChangeOf is a change of a pool, whose evidence is its description.
func poolChangeOf(c ipam.Change) api.Change {
	var made []struct {
		Generation int64         `json:"generation"`
		Prefix     string        `json:"prefix"`
		State      api.PoolState `json:"state"`
	}
	if json.Unmarshal(c.Evidence, &made) != nil || len(made) != 1 || made[0].Prefix == "" {
		return moveOf(c) // that the configuration was read: nothing of a pool is another
	}
	c.Evidence = nil
	w, d := moveOf(c), made[0]
	w.Described = &api.Described{UID: c.PoolUID, Generation: d.Generation, Prefix: d.Prefix, State: d.State}
	if c.Who.Reason == ipam.PoolRemoved {
		w.Described.State = api.PoolRemoved
	}
	return w
}

func moveOf(c ipam.Change) api.Change {
	return api.Change{
		Revision: c.Rev, At: c.At.Wall.UTC(), Address: ipam.AddrText(c.Addr), PrefixLength: c.PrefixLen, LeaseID: c.LeaseID, Pool: c.Pool,
		Sandbox: c.Sandbox, UID: c.UID, Interface: c.Interface, Attempt: c.Attempt, From: api.State(c.From), To: api.State(c.To),
		Actor: string(c.Who.Actor), Peer: c.Who.Peer, Reason: c.Who.Reason, Note: c.Who.Note, Evidence: evidence(c.Evidence),
	}
}

func (h *view) pool(u ipam.Usage) api.Pool {
	p := api.Pool{
		Name: u.Pool.Name, UID: u.Pool.UID, Family: api.Family(u.Pool.FamilyName()), Generation: u.Pool.Generation, Prefix: u.Pool.Prefix.String(),
		Bridge: u.Pool.Bridge, Routes: routes(u.Pool.Routes), DNS: ipam.Texts(u.Pool.DNS), State: api.PoolState(u.Pool.State),
		MTU: u.Pool.MTU, Cooldown: api.LastingIfAny(u.Pool.Cooldown), CooldownMin: api.LastingIfAny(u.Pool.CooldownMin), Exhausted: u.Pool.Exhausted, Labels: u.Pool.Labels,
		Size: u.Size, Free: u.Free, Kept: u.Kept, Outside: u.Outside, ByState: byState(u.ByState),
	}
	p.Available, _ = h.available(u.Pool.UID)
	if w := u.Pool.Warm; w != nil {
		p.Warm = &api.PoolWarm{Size: int64(w.Size), Max: int64(w.Max), Strategy: w.Strategy}
	}
	p.Slots = h.slots(u)
	if err := h.unready(&u.Pool); err != nil {
		p.NotReady = err.Error()
		if lacking, is := errors.AsType[*allocator.BridgeError](err); is {
			p.NotReady, p.Repair = lacking.Reason, lacking.Repair
		}
	}
	if u.Pool.Gateway.IsValid() {
		p.Gateway = u.Pool.Gateway.String()
	}
	for _, k := range u.Pool.Kept {
		p.Reservation = append(p.Reservation, api.PoolReservation{Sandbox: k.Sandbox, Address: k.Address.String()})
	}
	for _, r := range u.Pool.Exclude {
		if r.From == r.To {
			p.Exclude = append(p.Exclude, r.From.String())
		} else {
			p.Exclude = append(p.Exclude, r.From.String()+"-"+r.To.String())
		}
	}
	return p
}

func byState(counts map[ipam.State]int) map[string]int {
	out := make(map[string]int, len(counts))
	for state, n := range counts {
		out[string(state)] = n
	}
	return out
}

// network is what the interface needs beside its address.
func (h *view) network(p *ipam.Pool) api.Network {
	n := api.Network{Bridge: p.Bridge, MTU: cmp.Or(p.MTU, h.mtu(p.Bridge)), DNS: ipam.Texts(p.DNS)}
	if p.Gateway.IsValid() {
		n.Gateway = p.Gateway.String()
		all := "0.0.0.0/0"
		if p.Gateway.Is6() {
			all = "::/0"
		}
		n.Routes = append(n.Routes, api.Route{Destination: all, Via: n.Gateway})
	}
	n.Routes = append(n.Routes, routes(p.Routes)...)
	return n
}

// madeBy is what a slot was made by. Name servers are no part of what is made.
func (h *view) madeBy(p ipam.Plumbing) api.Network {
	spec := p.PoolSpec()
	spec.DNS = nil
	return h.network(&ipam.Pool{PoolSpec: spec})
}

func routes(all []ipam.Route) []api.Route {
	var out []api.Route
	for _, r := range all {
		out = append(out, api.Route{Destination: r.Destination.String(), Via: r.Via.String()})
	}
	return out
}
