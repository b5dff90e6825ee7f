package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/internal/ranges"
	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/netdb"
)

func (h *pools) pools(c *call) (int, any, error) {
	all, rev := h.poolList()
	return http.StatusOK, &api.PoolList{Pools: all, Revision: rev, Epoch: h.book.Epoch()}, nil
}

func (h *view) poolList() ([]api.Pool, int64) {
	usage, rev := h.book.Usage()
	out := make([]api.Pool, len(usage))
	for i, u := range usage {
		out[i] = h.pool(u)
	}
	return out, rev
}

// onePool answers GET /v1/pools/{name} with the pools of that name, v4 first.
func (h *pools) onePool(c *call) (int, any, error) {
	q, err := c.query()
	if err != nil {
		return 0, nil, err
	}
	family := api.Family(q.Get("family"))
	if family != "" && family != api.V4 && family != api.V6 {
		return 0, nil, field("family", "%.20q is none of v4, v6", family)
	}
	all, rev := h.poolList()
	named := slices.DeleteFunc(all, func(p api.Pool) bool {
		return p.Name != c.r.PathValue("name") || family != "" && p.Family != family
	})
	if len(named) == 0 {
		return 0, nil, fmt.Errorf("pool %.80q: %w", c.r.PathValue("name"), ipam.ErrNotFound)
	}
	slices.SortFunc(named, func(a, b api.Pool) int { return cmp.Compare(a.Family, b.Family) })
	return http.StatusOK, &api.PoolList{Pools: named, Revision: rev, Epoch: h.book.Epoch()}, nil
}

// applyPool makes a pool be as the body describes it.
func (h *pools) applyPool(c *call) (int, any, error) {
	var ask api.PoolRequest
	if err := c.body(&ask); err != nil {
		return 0, nil, err
	}
	spec, err := h.poolSpec(c.r.PathValue("name"), &ask)
	if err == nil && ask.UID != "" {
		err = readableUID(ask.UID)
	}
	if err != nil {
		return 0, nil, err
	}
	change := netdb.PoolChange{Spec: spec, UID: ask.UID, Generation: ask.Generation, Drain: ask.Drain}
	return h.changePool(c, ask.Preview, "", func() (*ipam.PoolOutcome, error) {
		if ask.Preview {
			change.SlotsEnd = true
			return h.book.PreviewSetPool(change)
		}
		var out *ipam.PoolOutcome
		err := h.vacate(c.ctx, func() (err error) {
			if out, err = h.book.SetPool(c.ctx, c.operator("pool_changed", ""), change); err != nil {
				c.endSlot() // slots may have to be taken down first
			}
			return err
		})
		return out, err
	})
}

// drainPool has a pool give nothing.
func (h *pools) drainPool(c *call) (int, any, error) {
	var ask api.DrainRequest
	now, err := h.drainRequest(c, &ask)
	if err != nil {
		return 0, nil, err
	}
	return h.changePool(c, ask.Preview, api.PoolDrain, func() (*ipam.PoolOutcome, error) { return h.drain(c.ctx, c, now, &ask) })
}

func (h *pools) drain(ctx context.Context, c *call, now *ipam.Pool, ask *api.DrainRequest) (*ipam.PoolOutcome, error) {
	if !ask.Preview {
		return h.book.DrainPool(ctx, c.operator("pool_drained", ""), now.UID, ask.Generation)
	}
	after := *now
	if after.State != ipam.PoolDraining {
		after.State, after.Generation = ipam.PoolDraining, now.Generation+1
	}
	return &ipam.PoolOutcome{Pool: &after, Was: now, Changed: now.State != ipam.PoolDraining, Stay: h.rowsOf(now.UID)}, nil
}

// undrainPool has a pool that drains give again.
func (h *pools) undrainPool(c *call) (int, any, error) {
	var ask api.DrainRequest
	now, err := h.drainRequest(c, &ask)
	if err != nil {
		return 0, nil, err
	}
	// The generation is the fence: a change since now was read is not undone.
	change := netdb.PoolChange{Spec: now.PoolSpec, UID: now.UID, Generation: now.Generation + 1, Drain: true}
	if now.State != ipam.PoolDraining {
		change.Generation = 0
	}
	return h.changePool(c, ask.Preview, api.PoolUndrain, func() (*ipam.PoolOutcome, error) {
		if ask.Preview {
			return h.book.PreviewSetPool(change)
		}
		return h.book.SetPool(c.ctx, c.operator("pool_undrained", ""), change)
	})
}

// drainRequest reads which pool is meant.
func (h *pools) drainRequest(c *call, ask *api.DrainRequest) (*ipam.Pool, error) {
	if err := c.body(ask); err != nil {
		return nil, err
	}
	if ask.Generation < 0 {
		return nil, field("generation", "%d is below 0", ask.Generation)
	}
	now, err := h.poolOf(c.r.PathValue("name"), ask.UID)
	if err == nil && ask.Generation != 0 && ask.Generation != now.Generation {
		err = &ipam.StalePoolError{Pool: now, Name: now.Name, Asked: ask.Generation, Last: now.Generation, UID: ask.UID}
	}
	return now, err
}

// removePool removes a pool. One that is to drain first and has leases yet is answered
// with 202.
func (h *pools) removePool(c *call) (int, any, error) {
	if err := c.body(&struct{}{}); err != nil {
		return 0, nil, err
	}
	q, err := c.query()
	if err != nil {
		return 0, nil, err
	}
	preview, err := strconv.ParseBool(cmp.Or(q.Get("preview"), "false"))
	if err != nil {
		return 0, nil, field("preview", "%.20q is neither true nor false", q.Get("preview"))
	}
	mode := cmp.Or(api.RemoveMode(q.Get("mode")), api.RemoveEmpty)
	if !slices.Contains([]api.RemoveMode{api.RemoveEmpty, api.RemoveDrain, api.RemoveForce}, mode) {
		return 0, nil, field("mode", "%.20q is none of empty, drain, force", mode)
	}
	reason := strings.TrimSpace(q.Get("reason"))
	force := mode == api.RemoveForce
	if force && reason == "" && !preview {
		return 0, nil, field("reason", "is missing: force ends leases, and the history keeps why")
	}
	now, err := h.poolOf(c.r.PathValue("name"), q.Get("uid"))
	if err != nil {
		return 0, nil, err
	}
	remove := func() (*ipam.PoolOutcome, error) {
		if preview {
			return h.book.PreviewRemovePool(now.UID, force)
		}
		return h.book.RemovePool(c.ctx, c.operator("pool_removed", reason), now.UID, force)
	}
	if mode != api.RemoveDrain {
		return h.changePool(c, preview, api.PoolRemove, remove)
	}
	drained, err := h.drain(c.ctx, c, now, &api.DrainRequest{Preview: preview})
	if err != nil {
		return 0, nil, err
	}
	gone, err := remove()
	switch {
	case errors.Is(err, ipam.ErrPoolNotEmpty):
		_, reply, err := h.changePool(c, preview, api.PoolDrain, func() (*ipam.PoolOutcome, error) { return drained, nil })
		if reply, is := reply.(*api.PoolReply); is {
			reply.Change = api.PoolDrain
		}
		return http.StatusAccepted, reply, err
	case err != nil:
		return 0, nil, err
	}
	return h.changePool(c, preview, api.PoolRemove, func() (*ipam.PoolOutcome, error) { return gone, nil })
}

// poolOf is the pool that a name and a uid name together: a late request never meets
// the pool that was made since.
func (h *pools) poolOf(name, uid string) (*ipam.Pool, error) {
	if uid == "" {
		return nil, field("uid", "is missing: it says which pool of this name is meant")
	}
	if err := readableUID(uid); err != nil {
		return nil, err
	}
	for _, p := range h.book.Pools() {
		if p.UID == uid && p.Name == name {
			return p, nil
		}
	}
	return nil, fmt.Errorf("pool %.80q with the uid %.80q: %w", name, uid, ipam.ErrNotFound)
}

// readableUID refuses what can be the uid of no pool.
func readableUID(uid string) error {
	if uuid.Validate(uid) != nil {
		return field("uid", "%.80q is no UUID: the pools' are in GET /v1/pools", uid)
	}
	return nil
}

// changePool makes a change of a pool, or its preview, and answers with what it does to
// the leases. verb is what it is called where it changes something; "": create or update.
func (h *pools) changePool(c *call, preview bool, verb api.PoolChange, do func() (*ipam.PoolOutcome, error)) (int, any, error) {
	ended := h.slotsEnded() // they may have gone when it is done
	out, err := do()
	if err != nil {
		return 0, nil, err
	}
	if !preview && out.Changed {
		_ = h.follow(c.ctx) // the pool says what its bridge lacks
	}
	reply := &api.PoolReply{Change: verb, Preview: preview, Unchanged: out.Stay, Effects: []api.PoolEffect{}, Total: len(out.Effects), TakenOver: out.Taken,
		Revision: h.book.Rev(), Epoch: h.book.Epoch()}
	switch {
	case !out.Changed:
		reply.Change = api.PoolSame
	case verb == "" && out.Was == nil:
		reply.Change = api.PoolCreate
	case verb == "":
		reply.Change = api.PoolUpdate
		reply.GivesAgain = out.Was.State == ipam.PoolDraining
	}
	if out.Cools.IsValid() {
		reply.GatewayRests = out.Cools.String()
	}
	for _, e := range out.Effects[:min(len(out.Effects), api.MostEffects)] {
		reply.Effects = append(reply.Effects, poolEffect(e))
	}
	if out.Changed && out.Was != nil {
		reply.SlotsEnded = ended(out.Was.UID, out.Pool)
	}
	if out.Pool == nil {
		reply.Pool = h.pool(ipam.Usage{Pool: *out.Was})
		reply.Pool.State = api.PoolRemoved
	} else {
		reply.Pool = h.pool(h.usageOf(out.Pool))
	}
	return http.StatusOK, reply, nil
}

// usageOf is what a pool holds now, described as it is given.
func (h *pools) usageOf(p *ipam.Pool) ipam.Usage {
	usage, _ := h.book.Usage()
	for _, u := range usage {
		if u.Pool.UID == p.UID {
			u.Pool = *p
			return u
		}
	}
	return ipam.Usage{Pool: *p}
}

func (h *pools) rowsOf(uid string) (n int) {
	usage, _ := h.book.Usage()
	for _, u := range usage {
		if u.Pool.UID == uid {
			for _, rows := range u.ByState {
				n += rows
			}
		}
	}
	return n
}

func poolEffect(e ipam.LeaseEffect) api.PoolEffect {
	return api.PoolEffect{LeaseID: e.Lease.ID, Address: e.Lease.Addr.String(), PrefixLength: e.Lease.PrefixLen, Sandbox: e.Lease.Sandbox, State: api.State(e.Lease.State),
		Effect: api.Effect(e.Effect), Note: e.Note}
}

// poolSpec reads a description. What its parts mean together is the book's to check.
func (h *pools) poolSpec(name string, ask *api.PoolRequest) (spec ipam.PoolSpec, err error) {
	spec = ipam.PoolSpec{Name: name, Bridge: cmp.Or(ask.Bridge, h.bridges()[0].Name), MTU: int(ask.MTU), Exhausted: ask.Exhausted, Labels: ask.Labels}
	if spec.Prefix, err = prefix("prefix", ask.Prefix); err != nil {
		return spec, err
	}
	switch ask.Gateway {
	case "":
		spec.Gateway = ipam.FirstHost(spec.Prefix)
	case api.NoGateway:
	default:
		if spec.Gateway, err = address("gateway", ask.Gateway); err != nil {
			return spec, err
		}
	}
	for i, text := range ask.Exclude {
		r, err := ranges.Parse(text)
		if err != nil {
			return spec, field(fmt.Sprintf("exclude[%d]", i), "%.80q is no address, range or prefix", text)
		}
		spec.Exclude = append(spec.Exclude, r)
	}
	for i, r := range ask.Routes {
		to, err := prefix(fmt.Sprintf("routes[%d].destination", i), r.Destination)
		if err != nil {
			return spec, err
		}
		via, err := address(fmt.Sprintf("routes[%d].via", i), r.Via)
		if err != nil {
			return spec, err
		}
		spec.Routes = append(spec.Routes, ipam.Route{Destination: to, Via: via})
	}
	for i, text := range ask.DNS {
		a, err := address(fmt.Sprintf("dns[%d]", i), text)
		if err != nil {
			return spec, err
		}
		spec.DNS = append(spec.DNS, a)
	}
	for i, r := range ask.Reservation {
		a, err := address(fmt.Sprintf("reservation[%d].address", i), r.Address)
		if err != nil {
			return spec, err
		}
		spec.Kept = append(spec.Kept, ipam.Kept{Sandbox: r.Sandbox, Address: a})
	}
	if spec.Cooldown, err = duration("cooldown", ask.Cooldown); err != nil {
		return spec, err
	}
	if spec.CooldownMin, err = duration("cooldown_min", ask.CooldownMin); err != nil {
		return spec, err
	}
	if w := ask.Warm; w != nil && *w != (api.PoolWarm{}) {
		spec.Warm = &ipam.Warm{Size: int(w.Size), Max: int(w.Max), Strategy: w.Strategy}
		if int64(spec.Warm.Size) != w.Size || int64(spec.Warm.Max) != w.Max {
			return spec, field("warm", "%d and %d are too large", w.Size, w.Max)
		}
	}
	if int64(spec.MTU) != ask.MTU {
		return spec, field("mtu", "%d is too large", ask.MTU)
	}
	return spec, plainField(spec.Check())
}

// prefix takes one prefix.
func prefix(name, text string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(text)
	switch {
	case text == "":
		return p, field(name, "is missing")
	case err != nil:
		return p, field(name, "%.80q is no prefix such as 10.8.64.0/24", text)
	}
	return p, nil
}

// plainField names a field of a description as the socket does: without the pool.
func plainField(err error) error {
	if wrong, is := errors.AsType[*ipam.FieldError](err); is {
		return &ipam.FieldError{Field: strings.TrimPrefix(wrong.Field, "pool."), Reason: wrong.Reason}
	}
	return err
}

// poolDetails is what a program needs of a change of a pool that was refused.
func poolDetails(err error, d map[string]any) {
	if stale, is := errors.AsType[*ipam.StalePoolError](err); is && stale.Pool != nil {
		d["uid"], d["generation"] = stale.Pool.UID, stale.Pool.Generation
	}
	if overlap, is := errors.AsType[*ipam.OverlapError](err); is && overlap.Other != nil {
		d["pool"], d["prefix"] = overlap.Other.Name, overlap.Other.Prefix.String()
	}
	if row, is := errors.AsType[*ipam.OtherPoolsRowError](err); is {
		d["address"], d["old_uid"], d["new_uid"] = row.Addr.String(), row.OldUID, row.NewUID
	}
	if held, is := errors.AsType[*ipam.PoolNotEmptyError](err); is {
		leases := []api.PoolEffect{}
		for _, e := range held.Effects[:min(len(held.Effects), api.MostHolders)] {
			leases = append(leases, poolEffect(e))
		}
		d["leases"], d["total"] = leases, len(held.Effects)
	}
}

// available is how many addresses a pool can give now, by its own policy, and how long
// until one has cooled where none can; 0 when none cools.
func (h *view) available(poolUID string) (n uint64, next time.Duration) {
	for _, p := range h.book.Pools() {
		if p.UID == poolUID {
			return h.book.Available(poolUID, p.Policy(h.policy))
		}
	}
	return 0, 0
}
