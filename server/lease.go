package server

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/netdb"
	"github.com/ipamd/ipamd/server/admission"
	"github.com/ipamd/ipamd/watchdog"
)

func (h *leases) bind(c *call) (int, any, error) {
	var ask api.BindRequest
	var warnings []api.BindWarning
	status, reply, err := h.onLease(c, &ask, &ask.IfRevision, func(id string, ifRev int64) (*ipam.Lease, error) {
		if err := h.ofSandbox(id); err != nil { // its sandbox would be given what is not so
			return nil, err
		}
		b := bindingOf(&ask)
		l, err := h.book.Bind(c.ctx, c.who(ipam.ByClient, "bound"), id, ifRev, b)
		if err == nil {
			warnings = h.differs(c, l, b)
		}
		return l, err
	})
	if reply, is := reply.(*api.LeaseReply); is {
		reply.Warnings = warnings
	}
	return status, reply, err
}

func bindingOf(ask *api.BindRequest) ipam.Binding {
	return ipam.Binding{Containers: containers(ask.Containers), Gone: containers(ask.Gone),
		Netns: ask.Netns, HostInterface: ask.HostInterface, MAC: ask.MAC}
}

// differs is what a bind that was recorded names otherwise than the kernel shows it.
func (h *leases) differs(c *call, l *ipam.Lease, b ipam.Binding) (out []api.BindWarning) {
	for _, d := range h.compare(c.ctx, l, b) {
		out = append(out, api.BindWarning(d))
	}
	return out
}

func containers(all []api.Container) []ipam.Container {
	var out []ipam.Container
	for _, k := range all {
		out = append(out, ipam.Container(k))
	}
	return out
}

// onLease decodes a verb on one lease, makes it, and answers with the lease.
// ifRevision is in ask.
func (h *view) onLease(c *call, ask any, ifRevision *int64, do func(id string, ifRev int64) (*ipam.Lease, error)) (int, any, error) {
	id, err := c.id()
	if err != nil {
		return 0, nil, err
	}
	if err := c.body(ask); err != nil {
		return 0, nil, err
	}
	ifRev, err := c.seenAt(*ifRevision)
	if err != nil {
		return 0, nil, err
	}
	l, err := do(id, ifRev)
	if err != nil {
		return 0, nil, err
	}
	return http.StatusOK, h.leaseReply(c, l, nil), nil
}

// onAddress decodes an operator's verb on one address, makes it, and answers with the
// lease that holds it.
func (h *view) onAddress(c *call, ask any, do func(addr netip.Addr) (*ipam.Lease, error)) (int, any, error) {
	addr, err := c.addr()
	if err != nil {
		return 0, nil, err
	}
	if err := c.body(ask); err != nil {
		return 0, nil, err
	}
	l, err := do(addr)
	if err != nil {
		return 0, nil, err
	}
	return http.StatusOK, h.leaseReply(c, l, nil), nil
}

func (h *view) leaseReply(c *call, l *ipam.Lease, blockers []watchdog.Blocker) *api.LeaseReply {
	c.w.Header().Set("ETag", etag(l))
	return &api.LeaseReply{Lease: h.shown(l), Blockers: blockersOf(blockers),
		Revision: h.book.Rev(), Epoch: h.book.Epoch()}
}

func blockersOf(blockers []watchdog.Blocker) (out []api.Blocker) {
	for _, b := range blockers {
		out = append(out, api.Blocker(b))
	}
	return out
}

// lease answers GET /v1/leases/{id}; of a releasing lease with what keeps it.
func (h *leases) lease(c *call) (int, any, error) {
	id, err := c.id()
	if err != nil {
		return 0, nil, err
	}
	l, err := h.book.Lease(id)
	if err != nil {
		return 0, nil, err
	}
	var blockers []watchdog.Blocker
	if l.State == ipam.Releasing {
		blockers = h.releaser.Blockers(l)
	}
	return http.StatusOK, h.leaseReply(c, l, blockers), nil
}

// leasesMost is how many leases a page holds.
const leasesMost = 10_000

// leases answers with one consistent listing, or a page of it.
func (h *leases) leases(c *call) (int, any, error) {
	q, err := c.query()
	if err != nil {
		return 0, nil, err
	}
	want, err := state("state", q.Get("state"))
	if err != nil {
		return 0, nil, err
	}
	usage, _ := h.book.Usage()
	bits := make(map[string]int, len(usage))
	var pools []string
	for _, u := range usage {
		bits[u.Pool.UID] = u.Pool.Prefix.Bits()
		if !slices.Contains(pools, u.Pool.Name) { // a name may stand for one of each family
			pools = append(pools, u.Pool.Name)
		}
	}
	if name := q.Get("pool"); q.Has("pool") && !slices.Contains(pools, name) {
		return 0, nil, field("pool", "there is no pool %.60q; there is: %s", name, strings.Join(pools, ", "))
	}
	var after netip.Addr // the zero one is before all others
	if q.Has("after") {
		if after, err = address("after", q.Get("after")); err != nil {
			return 0, nil, err
		}
	}
	limit, err := count("limit", q.Get("limit"), leasesMost)
	if err != nil {
		return 0, nil, err
	}
	all, rev := h.book.Leases()
	reply := &api.LeaseList{Leases: []api.Lease{}, Revision: rev, Epoch: h.book.Epoch()}
	first, found := slices.BinarySearchFunc(all, after, func(l *ipam.Lease, a netip.Addr) int { return l.Addr.Compare(a) })
	if found {
		first++
	}
	return http.StatusOK, &listing{reply: reply, holds: pointerBytes * len(all), items: func(yield func(any, error) bool) {
		n, last := 0, ""
		for _, l := range all[first:] {
			if q.Has("sandbox") && l.Sandbox != q.Get("sandbox") && l.UID != q.Get("sandbox") ||
				q.Has("pool") && l.Pool != q.Get("pool") || want != "" && l.State != want {
				continue
			}
			if limit > 0 && n == limit {
				reply.Next = last
				return
			}
			known, is := bits[l.PoolUID]
			if !is {
				known = l.Addr.BitLen()
			}
			shown := h.wire(l, known)
			if !yield(&shown, nil) {
				return
			}
			n, last = n+1, shown.Address
		}
	}}, nil
}

func (h *leases) cancel(c *call) (int, any, error) {
	var ask api.CancelRequest
	if err := c.body(&ask); err != nil {
		return 0, nil, err
	}
	c.sandbox = ask.UID
	if ipam.IsSlotUID(ask.UID) {
		return 0, nil, field("uid", "%.80q begins as those of ipamd's own leases do, which no sandbox has", ask.UID)
	}
	ended, err := h.book.Cancel(c.ctx, c.who(ipam.ByClient, "cancelled"), ask.UID, ask.Attempt)
	var released []api.Lease
	for _, l := range ended {
		released = append(released, h.shown(l))
	}
	if errors.Is(err, ipam.ErrTombstones) {
		err = &fullError{released: released, BusyError: &admission.BusyError{Limit: "tombstones", Most: netdb.MaxTombstones, After: time.Minute,
			Text: fmt.Sprintf("%v, %d at the most; %d open leases are released all the same", err, netdb.MaxTombstones, len(released))}}
	}
	if err != nil {
		return 0, nil, err
	}
	return http.StatusOK, &api.CancelReply{Released: released, Revision: h.book.Rev(), Epoch: h.book.Epoch()}, nil
}

// A fullError is a cancel for which no tombstone has room.
type fullError struct {
	*admission.BusyError
	released []api.Lease
}

func (e *fullError) Unwrap() error { return e.BusyError }
