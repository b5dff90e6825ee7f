package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/ipamd/ipamd/allocator"
	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/attach"
	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/ipam"
)

// A Desk passes ports that are to be made to the helper.
type Desk = attach.Desk[api.PlumbReply, api.PlumbDoneRequest]

// Making returns a function that says whether a helper may be making a port with the address of a lease, for
// work of these desks: also for a call that was given up since.
func Making(desks ...*Desk) func(leaseID string) bool {
	return func(leaseID string) bool {
		is := func(work api.PlumbReply) bool {
			return makes(work) && slices.ContainsFunc(work.Leases, func(l api.Lease) bool { return l.ID == leaseID })
		}
		return slices.ContainsFunc(desks, func(d *Desk) bool { return d.Has(is) })
	}
}

// makes reports whether work brings up a port with the addresses of its leases.
func makes(work api.PlumbReply) bool {
	return work.Verb == api.PlumbAttach || work.Verb == api.PlumbSlotMake
}

// attach has the port of a lease's interface made, and binds the leases by what was made.
func (h *ports) attach(c *call) (int, any, error) {
	var ask api.AttachRequest
	var networks []api.Network
	status, reply, err := h.onLease(c, &ask, &ask.IfRevision, func(id string, ifRev int64) (l *ipam.Lease, err error) {
		if err := h.attachable(c, &ask); err != nil {
			return nil, err
		}
		l, networks, err = h.attachTo(c, id, ifRev, &ask, func([]*ipam.Lease) {})
		return l, err
	})
	if reply, is := reply.(*api.LeaseReply); is {
		reply.Networks = networks
	}
	return status, reply, err
}

// attachable refuses what can be no port, before anything is done for it.
func (h *ports) attachable(c *call, ask *api.AttachRequest) error {
	switch {
	case ask.Tap && ask.Netns != "":
		return field("tap", "is beside netns: a tap is in no network namespace")
	case !ask.Tap && ask.Netns == "":
		return field("netns", "is missing: the path of the sandbox's network namespace; or say tap, for a virtual machine")
	}
	if mac, err := net.ParseMAC(ask.MAC); ask.MAC != "" && (err != nil || len(mac) != 6) {
		return field("mac", "%.40q is not six bytes like 02:00:00:00:00:01", ask.MAC)
	}
	if ask.Tap {
		return nil
	}
	return h.checkNetns(c.ctx, ask.Netns)
}

// attachTo attaches the interface of a lease, and returns what it was plumbed by beside the lease.
// Where that fails it calls undo, before what was made is kept or taken away and before another
// call has the interface; bound are the leases that it has bound all the same.
func (h *ports) attachTo(c *call, id string, ifRev int64, ask *api.AttachRequest, undo func(bound []*ipam.Lease)) (l *ipam.Lease, networks []api.Network, err error) {
	unlock, err := h.alone(c, id)
	if err != nil {
		undo(nil)
		return nil, nil, err
	}
	defer unlock()
	var bound []*ipam.Lease
	undone := false
	defer func() {
		if err != nil && !undone {
			undo(bound)
		}
	}()
	if l, err = h.portOf(id, ifRev, ipam.Reserved, ipam.Bound); err != nil {
		return nil, nil, err
	}
	netns := ""
	if ask.Tap {
		err = h.mayTap(l)
	} else {
		netns, err = h.fits(c.ctx, l, ask.Netns)
	}
	if err != nil {
		return nil, nil, err
	}
	work := h.plumbing("attach", l)
	work.Netns, work.Tap, work.MAC = netns, ask.Tap, ask.MAC
	err = h.plumb(c, *work, func(r api.PlumbDoneRequest) (err error) {
		where := ipam.Binding{Netns: netns, HostInterface: r.Host, MAC: r.MAC}
		ids := []string{id} // the one that the caller has seen at a revision is first
		for _, of := range work.Leases {
			if of.ID != id { // a paused one stays paused
				ids = append(ids, of.ID)
			}
		}
		bound, err = h.book.BindEach(c.ctx, c.who(ipam.ByClient, "attached"), ids, ifRev, where)
		if err != nil {
			undo(bound)
			undone = true
			return err
		}
		l = bound[0]
		return nil
	})
	return l, work.Networks, err
}

// mayTap refuses a tap for an interface whose sandbox is in a network namespace: the lease would say
// both of it.
func (h *ports) mayTap(l *ipam.Lease) error {
	for _, of := range append(h.interfaceOf(l), h.inSlots(l)...) {
		if of.Netns != "" {
			return field("tap", "is asked for, and the lease of %s is bound to the network namespace %s: release it", of.Addr, of.Netns)
		}
	}
	return nil
}

// fits returns the path of a namespace, which is the slot's where that is the warm slot's which the
// interface has. It refuses another one then, and one of a slot that no sandbox has, by whatever
// path: it would be given with what is in it.
func (h *ports) fits(ctx context.Context, l *ipam.Lease, netns string) (string, error) {
	inode, unknown := h.netnsInode(ctx, netns) // all network namespaces are on one device
	is := func(slot *ipam.Slot) bool {
		if slot.Netns == netns {
			return true
		}
		own, err := h.inodeOf(ctx, slot)
		unknown = errors.Join(unknown, err)
		return inode != 0 && inode == own
	}
	for _, of := range h.inSlots(l) {
		slot := h.book.Slot(of.ID)
		switch {
		case slot == nil: // it ended just now
		case !is(slot) && unknown != nil:
			return "", notSeen(unknown)
		case !is(slot):
			return "", field("netns", "%.200q is not that of the warm slot of %s, %s", netns, of.Addr, slot.Netns)
		default:
			netns = slot.Netns
		}
	}
	for _, slot := range h.book.Slots() {
		switch {
		case slot.Claimed:
		case slot.Port() == ipam.SlotPort(netns) || is(slot):
			return "", field("netns", "%.200q is that of a warm slot which no sandbox has", netns)
		case unknown != nil:
			return "", notSeen(unknown)
		}
	}
	return netns, nil
}

// notSeen is that it is not known which namespaces there are: asked again, the kernel may say it.
func notSeen(err error) error {
	return &allocator.EvidenceError{Silent: []census.Silence{{Witness: census.Netns, Reason: err.Error(), Since: time.Now()}}}
}

// inodeOf is that of a slot's namespace, 0 where there is none. An error means that it is not known.
func (h *ports) inodeOf(ctx context.Context, slot *ipam.Slot) (uint64, error) {
	if l, err := h.book.Lease(slot.LeaseID); err == nil && l.Netns == slot.Netns && l.Plug.Inode != 0 && l.Plug.OfBoot(h.book.Now().BootID) {
		return l.Plug.Inode, nil
	}
	return h.netnsInode(ctx, slot.Netns)
}

// attachGiven attaches what was just given, or releases it again: the port and the lease,
// or neither. A lease that was there before stays, and so does one that another call has
// bound meanwhile.
func (h *ports) attachGiven(c *call, given *allocator.Result, ask *api.AttachRequest) error {
	_, _, err := h.attachTo(c, given.Leases[0].ID, 0, ask, func(bound []*ipam.Lease) { h.takeBack(c, given, bound) })
	if err != nil {
		return err
	}
	for i, l := range given.Leases {
		if given.Leases[i], err = h.book.Lease(l.ID); err != nil {
			return err
		}
	}
	return nil
}

// takeBack releases what was just given and is not answered. bound are leases as this call has bound them.
func (h *ports) takeBack(c *call, given *allocator.Result, bound []*ipam.Lease) {
	if given.Existing {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.ctx), undoWithin)
	defer cancel()
	for i, l := range given.Leases {
		if !given.Fresh[i] {
			continue
		}
		if n := slices.IndexFunc(bound, func(b *ipam.Lease) bool { return b.ID == l.ID }); n >= 0 {
			l = bound[n]
		}
		_, _, err := h.releaser.Release(ctx, c.who(ipam.ByClient, "attach_failed"), l.ID, "", l.Rev)
		if err != nil && !errors.Is(err, ipam.ErrStale) {
			h.log.Warn("a lease stays whose port could not be made", "lease", l.ID, "addr", l.Addr, "err", err)
		}
	}
}

// undoWithin bounds the release of a lease whose caller may have left.
const undoWithin = 5 * time.Second

// detach has the port taken away. The lease stays as it is, for its release, or for
// another attach. Behind a release it takes away what the confirmation waits for, and a lease
// that has ended has no port: that is a success, as its release is.
func (h *ports) detach(c *call) (int, any, error) {
	var ask api.DetachRequest
	return h.onLease(c, &ask, &ask.IfRevision, func(id string, ifRev int64) (l *ipam.Lease, err error) {
		unlock, err := h.alone(c, id)
		if err == nil {
			defer unlock()
			l, err = h.book.Lease(id)
		}
		switch {
		case errors.Is(err, ipam.ErrGone):
			l, _, err = h.releaser.Release(c.ctx, c.who(ipam.ByClient, "released"), id, "", 0)
			return l, err
		case err != nil || l.State == ipam.Cooling:
			return l, err
		}
		states := []ipam.State{ipam.Reserved, ipam.Bound, ipam.Paused, ipam.Releasing}
		if l.UID != "" { // of a sandbox whose removal took too long to be confirmed, or cannot be
			states = append(states, ipam.Quarantined)
		}
		if l, err = h.portOf(id, ifRev, states...); err != nil {
			return nil, err
		}
		if o := h.user(l); o != nil {
			return nil, fmt.Errorf("the port is in use by %s, lease %s of %s: %w", o.Addr, o.ID, o.Sandbox, ipam.ErrState)
		}
		work := h.plumbing("detach", l)
		work.Host = l.HostInterface
		return l, h.plumb(c, *work, func(api.PlumbDoneRequest) error { return nil })
	})
}

// alone waits until no other call has the port of a lease's interface made or taken away: what is
// decided about a port holds until that is done.
func (h *ports) alone(c *call, id string) (unlock func(), err error) {
	l, err := h.book.Lease(id)
	if err != nil {
		return nil, err
	}
	c.endSlot() // it waits, and takes no other call's slot
	return h.plugging.Lock(c.ctx, cmp.Or(l.UID, l.ID)+"/"+l.Interface)
}

// portOf is a lease that may have its port made, or taken away.
func (h *ports) portOf(id string, ifRev int64, states ...ipam.State) (*ipam.Lease, error) {
	l, err := h.book.Lease(id)
	switch {
	case err != nil:
		return nil, err
	case ifRev != 0 && ifRev != l.Rev:
		return nil, fmt.Errorf("lease %s is at revision %d: %w", id, l.Rev, ipam.ErrStale)
	case !slices.Contains(states, l.State):
		return nil, fmt.Errorf("the lease of %s is %s: %w", l.Addr, l.State, ipam.ErrState)
	}
	return l, h.ofSandbox(id)
}

// user is the open lease that has the port of a lease's interface, where that lease has it no
// more or never had; nil: none. A detach of an ended lease, or of another sandbox's with the same
// uid, shall not take away a port that is in use.
func (h *ports) user(l *ipam.Lease) *ipam.Lease {
	all, _ := h.book.Leases()
	for _, o := range all {
		same := o.HostInterface == l.HostInterface
		if l.HostInterface == "" { // its name is made of these
			same = l.UID != "" && o.UID == l.UID && o.Interface == l.Interface
		}
		if same && o.HostInterface != "" && o.State.Open() && o.ID != l.ID && !(l.State.Open() && sharesPort(l, o)) {
			return o
		}
	}
	return nil
}

// sharesPort reports that two leases are of one interface, and so of one port.
func sharesPort(l, o *ipam.Lease) bool {
	return l.UID != "" && o.UID == l.UID && o.Interface == l.Interface && o.Sandbox == l.Sandbox
}

// interfaceOf are the leases that the interface of a lease has, with that one: v4 is first.
func (h *ports) interfaceOf(l *ipam.Lease) []*ipam.Lease {
	of := []*ipam.Lease{l}
	all, _ := h.book.Leases()
	for _, o := range all {
		if o.ID != l.ID && sharesPort(l, o) && (o.State == ipam.Reserved || o.State == ipam.Bound || o.State == ipam.Paused) {
			of = append(of, o)
		}
	}
	slices.SortFunc(of, func(a, b *ipam.Lease) int { return a.Addr.Compare(b.Addr) })
	return of
}

// inSlots are the leases of the interface of a lease that have a warm slot. One that is being
// released has it until that is confirmed: the port was made for the slot, and another lease that
// is recorded at it stays there.
func (h *ports) inSlots(l *ipam.Lease) []*ipam.Lease {
	of := h.interfaceOf(l)
	all, _ := h.book.Leases()
	for _, o := range all {
		if o.State == ipam.Releasing && o.ID != l.ID && sharesPort(l, o) && o.HostInterface != "" && o.HostInterface == l.HostInterface {
			of = append(of, o)
		}
	}
	return slices.DeleteFunc(of, func(o *ipam.Lease) bool { return h.book.Slot(o.ID) == nil })
}

// plumbing is the work on the port of a lease's interface, with all leases that the
// interface has: it is one port, of one owner, whichever of them is named.
func (h *ports) plumbing(verb string, l *ipam.Lease) *api.PlumbReply {
	work := &api.PlumbReply{Verb: verb, Owner: cmp.Or(l.UID, l.ID) + "/" + l.Interface}
	if owner := h.slotOwner(l.Netns, l.HostInterface); owner != "" { // a slot's, also where its row has ended before the port
		work.Owner = owner
	}
	for _, o := range h.inSlots(l) {
		one := o.ID == l.ID || l.State.Open() && l.HostInterface == "" || l.HostInterface != "" && l.HostInterface == o.HostInterface
		if slot := h.book.Slot(o.ID); slot != nil && one { // the port was made for the slot
			work.Owner = slot.Port()
		}
	}
	for _, o := range h.interfaceOf(l) {
		for _, p := range h.book.Pools() {
			if p.UID == o.PoolUID {
				work.Leases = append(work.Leases, h.wire(o, p.Prefix.Bits()))
				work.Networks = append(work.Networks, h.network(p))
			}
		}
	}
	return work
}

// plumb has a helper do the work, and bind take in what came of it.
func (h *ports) plumb(c *call, work api.PlumbReply, take func(api.PlumbDoneRequest) error) error {
	c.endSlot() // it waits for the helper, and takes no other call's slot
	err := h.desk.Do(c.ctx, work, func(r api.PlumbDoneRequest) (keep bool, err error) {
		switch {
		case r.Field == "host_interface":
			return false, fmt.Errorf("%s: %s: %w", work.Verb, r.Error, ipam.ErrState)
		case r.Field != "":
			return false, field(r.Field, "%s", r.Error)
		case r.Error != "":
			return false, fmt.Errorf("%s: %s: %w", work.Verb, r.Error, allocator.ErrNotReady)
		}
		if err := take(r); err != nil {
			return h.has(work, r), err
		}
		return true, nil
	})
	if errors.Is(err, attach.ErrNoHelper) || errors.Is(err, attach.ErrBusy) {
		return fmt.Errorf("%s: %w: %w", work.Verb, allocator.ErrNotReady, err)
	}
	return err
}

// has says whether a lease is recorded to be at a port: a later answer to an earlier
// question takes nothing away that is in use.
func (h *ports) has(work api.PlumbReply, r api.PlumbDoneRequest) bool {
	for _, of := range work.Leases {
		l, err := h.book.Lease(of.ID)
		if err == nil && l.State.Open() && r.Host != "" && l.HostInterface == r.Host && l.Netns == work.Netns {
			return true
		}
	}
	return false
}

// plumbWork gives work to the helper, or waits for some.
func (h *ports) plumbWork(c *call) (int, any, error) {
	var ask api.PlumbRequest
	if err := c.body(&ask); err != nil {
		return 0, nil, err
	}
	wait, err := patience(ask.Wait)
	if err != nil {
		return 0, nil, err
	}
	if ask.Worker == "" {
		return 0, nil, field("worker", "is missing: it sets one life of the helper apart from the next")
	}
	desk, err := h.deskFor(ask.Verbs)
	if err != nil {
		return 0, nil, err
	}
	c.endSlot()
	ctx, cancel := context.WithTimeout(c.r.Context(), wait)
	defer cancel()
	defer context.AfterFunc(c.stopping(), cancel)()
	job := desk.Take(ctx, ask.Worker)
	for ; job != nil; job = desk.Take(ctx, ask.Worker) {
		over := h.ended(job.Work)
		if over == nil {
			break
		}
		desk.Report(ctx, job.ID, api.PlumbDoneRequest{ID: job.ID, Error: over.Error()})
	}
	if job == nil {
		return http.StatusOK, &api.PlumbReply{}, nil
	}
	work := job.Work
	work.ID = job.ID
	return http.StatusOK, &work, nil
}

// ended says which lease has ended of those that a port is to be made for; nil: none. It is asked once the
// work is in hand, for no lease ends from then on while that may be done: see [Making].
func (h *ports) ended(work api.PlumbReply) error {
	if !makes(work) {
		return nil
	}
	for _, of := range work.Leases {
		if l, err := h.book.Lease(of.ID); err != nil || !l.State.Open() {
			return fmt.Errorf("the lease of %s has ended meanwhile", of.Address)
		}
	}
	return nil
}

// plumbDone takes in what came of a piece of work.
func (h *ports) plumbDone(c *call) (int, any, error) {
	var ask api.PlumbDoneRequest
	if err := c.body(&ask); err != nil {
		return 0, nil, err
	}
	if ask.ID == "" {
		return 0, nil, field("id", "is missing: of the work")
	}
	c.endSlot()
	desk := h.desk
	if strings.HasPrefix(ask.ID, slotJobs) {
		desk = h.slotDesk
	}
	keep, live := desk.Report(c.ctx, ask.ID, ask)
	if !live { // who wanted it has left, and may have it all the same: by an earlier attach
		keep = h.usedBy(ask.Host)
	}
	return http.StatusOK, &api.PlumbDoneReply{Keep: keep}, nil
}

// deskFor is where a worker gets the work that it has the rights for. One that can do the work of
// ports and that of slots asks for each by itself: neither waits for the other.
func (h *ports) deskFor(verbs []string) (*Desk, error) {
	in := func(all []string) bool {
		return !slices.ContainsFunc(verbs, func(v string) bool { return !slices.Contains(all, v) })
	}
	switch {
	case in(api.PlumbVerbs()): // also none
		return h.desk, nil
	case in(api.PlumbSlotVerbs()):
		return h.slotDesk, nil
	}
	return nil, field("verbs", "%.80q are neither all of ports (%s) nor all of slots (%s)", verbs,
		strings.Join(api.PlumbVerbs(), ", "), strings.Join(api.PlumbSlotVerbs(), ", "))
}

// usedBy says whether an open lease is recorded at a port.
func (h *ports) usedBy(host string) bool {
	all, _ := h.book.Leases()
	return host != "" && slices.ContainsFunc(all, func(l *ipam.Lease) bool { return l.State.Open() && l.HostInterface == host })
}

// plumbStatus says whether ports can be made.
func (h *ports) plumbStatus() *api.PlumbStatus {
	if h.desk.Present() {
		return &api.PlumbStatus{Ready: true}
	}
	return &api.PlumbStatus{Why: attach.ErrNoHelper.Error(), Wanted: h.desk.Wanted()}
}
