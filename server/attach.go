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
	"github.com/ipamd/ipamd/netdb"
)

// A Desk passes ports that are to be made to the helper.
type Desk = attach.Desk[api.PlumbReply, api.PlumbDoneRequest]

// attach has the port of a lease's interface made, and binds the leases by what was made.
func (s *Server) attach(c *call) (int, any, error) {
	var ask api.AttachRequest
	return s.onLease(c, &ask, &ask.IfRevision, func(id string, ifRev int64) (*netdb.Lease, error) {
		if err := s.attachable(c, &ask); err != nil {
			return nil, err
		}
		return s.attachTo(c, id, ifRev, &ask)
	})
}

// attachable refuses what can be no port, before anything is done for it.
func (s *Server) attachable(c *call, ask *api.AttachRequest) error {
	if ask.Netns == "" {
		return field("netns", "is missing: the path of the sandbox's network namespace")
	}
	if mac, err := net.ParseMAC(ask.MAC); ask.MAC != "" && (err != nil || len(mac) != 6) {
		return field("mac", "%.40q is not six bytes like 02:00:00:00:00:01", ask.MAC)
	}
	return s.cfg.CheckNetns(c.ctx, ask.Netns)
}

func (s *Server) attachTo(c *call, id string, ifRev int64, ask *api.AttachRequest) (*netdb.Lease, error) {
	l, err := s.portOf(id, ifRev, netdb.Reserved, netdb.Bound)
	if err != nil {
		return nil, err
	}
	if slot := s.cfg.Book.Slot(id); slot != nil && slot.Netns != ask.Netns {
		return nil, field("netns", "%.200q is not that of the lease's warm slot, %s", ask.Netns, slot.Netns)
	}
	work := s.plumbing("attach", l)
	work.Netns, work.MAC = ask.Netns, ask.MAC
	err = s.plumb(c, *work, func(r api.PlumbDoneRequest) error {
		where := netdb.Binding{Netns: ask.Netns, HostInterface: r.Host, MAC: r.MAC}
		ids := []string{id} // the one that the caller has seen at a revision is first
		for _, of := range work.Leases {
			if of.ID != id {
				ids = append(ids, of.ID)
			}
		}
		bound, err := s.cfg.Book.BindEach(c.ctx, c.who(netdb.ByClient, "attached"), ids, ifRev, where)
		if err == nil {
			l = bound[0]
		}
		return err
	})
	return l, err
}

// attachGiven attaches what was just given, or releases it again: the port and the lease,
// or neither. A lease that was there before stays.
func (s *Server) attachGiven(c *call, given *allocator.Result, ask *api.AttachRequest) error {
	_, err := s.attachTo(c, given.Leases[0].ID, 0, ask)
	if err == nil {
		for i, l := range given.Leases {
			if given.Leases[i], err = s.cfg.Book.Lease(l.ID); err != nil {
				return err
			}
		}
		return nil
	}
	if given.Existing {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.ctx), undoWithin)
	defer cancel()
	for _, l := range given.Leases {
		if _, _, undone := s.cfg.Releaser.Release(ctx, c.who(netdb.ByClient, "attach_failed"), l.ID, "", 0); undone != nil {
			s.cfg.Log.Warn("a lease stays whose port could not be made", "lease", l.ID, "addr", l.Addr, "err", undone)
		}
	}
	return err
}

// undoWithin bounds the release of a lease whose caller may have left.
const undoWithin = 5 * time.Second

// detach has the port taken away. The lease stays as it is, for its release, or for
// another attach.
func (s *Server) detach(c *call) (int, any, error) {
	var ask api.DetachRequest
	return s.onLease(c, &ask, &ask.IfRevision, func(id string, ifRev int64) (*netdb.Lease, error) {
		l, err := s.portOf(id, ifRev, netdb.Reserved, netdb.Bound, netdb.Paused, netdb.Releasing)
		if err != nil {
			return nil, err
		}
		work := s.plumbing("detach", l)
		work.Host = l.HostInterface
		return l, s.plumb(c, *work, func(api.PlumbDoneRequest) error { return nil })
	})
}

// portOf is a lease that may have its port made, or taken away.
func (s *Server) portOf(id string, ifRev int64, states ...netdb.State) (*netdb.Lease, error) {
	l, err := s.cfg.Book.Lease(id)
	switch {
	case err != nil:
		return nil, err
	case ifRev != 0 && ifRev != l.Rev:
		return nil, fmt.Errorf("lease %s is at revision %d: %w", id, l.Rev, netdb.ErrStale)
	case !slices.Contains(states, l.State):
		return nil, fmt.Errorf("the lease of %s is %s: %w", l.Addr, l.State, netdb.ErrState)
	}
	return l, nil
}

// plumbing is the work on the port of a lease's interface, with all leases that the
// interface has: it is one port, of one owner, whichever of them is named.
func (s *Server) plumbing(verb string, l *netdb.Lease) *api.PlumbReply {
	work := &api.PlumbReply{Verb: verb, Owner: cmp.Or(l.UID, l.ID) + "/" + l.Interface}
	of := []*netdb.Lease{l}
	if all, _ := s.cfg.Book.Leases(); l.UID != "" {
		for _, o := range all {
			if o.ID != l.ID && o.UID == l.UID && o.Interface == l.Interface && o.Sandbox == l.Sandbox &&
				(o.State == netdb.Reserved || o.State == netdb.Bound) {
				of = append(of, o)
			}
		}
	}
	if slot := s.cfg.Book.Slot(l.ID); slot != nil { // its port was made for the slot
		work.Owner = slot.Port()
	}
	slices.SortFunc(of, func(a, b *netdb.Lease) int { return a.Addr.Compare(b.Addr) }) // v4 is first
	for _, o := range of {
		for _, p := range s.cfg.Book.Pools() {
			if p.UID == o.PoolUID {
				work.Leases = append(work.Leases, s.wire(o, p.Prefix.Bits()))
				work.Networks = append(work.Networks, s.network(p))
			}
		}
	}
	return work
}

// plumb has a helper do the work, and bind take in what came of it.
func (s *Server) plumb(c *call, work api.PlumbReply, take func(api.PlumbDoneRequest) error) error {
	c.endSlot() // it waits for the helper, and takes no other call's slot
	err := s.cfg.Desk.Do(c.ctx, work, func(r api.PlumbDoneRequest) (keep bool, err error) {
		switch {
		case r.Field == "host_interface":
			return false, fmt.Errorf("%s: %s: %w", work.Verb, r.Error, netdb.ErrState)
		case r.Field != "":
			return false, field(r.Field, "%s", r.Error)
		case r.Error != "":
			return false, fmt.Errorf("%s: %s: %w", work.Verb, r.Error, allocator.ErrNotReady)
		}
		if err := take(r); err != nil {
			return s.has(work, r), err
		}
		return true, nil
	})
	if errors.Is(err, attach.ErrNoHelper) {
		return fmt.Errorf("%s: %w: %w", work.Verb, allocator.ErrNotReady, err)
	}
	return err
}

// has says whether a lease is recorded to be at a port: a later answer to an earlier
// question takes nothing away that is in use.
func (s *Server) has(work api.PlumbReply, r api.PlumbDoneRequest) bool {
	for _, of := range work.Leases {
		l, err := s.cfg.Book.Lease(of.ID)
		if err == nil && l.State.Open() && r.Host != "" && l.HostInterface == r.Host && l.Netns == work.Netns {
			return true
		}
	}
	return false
}

// plumbWork gives work to the helper, or waits for some.
func (s *Server) plumbWork(c *call) (int, any, error) {
	var ask api.PlumbRequest
	if err := s.body(c, &ask); err != nil {
		return 0, nil, err
	}
	wait, err := patience(ask.Wait)
	if err != nil {
		return 0, nil, err
	}
	if ask.Worker == "" {
		return 0, nil, field("worker", "is missing: it tells one life of the helper from the next")
	}
	desk, err := s.deskFor(ask.Verbs)
	if err != nil {
		return 0, nil, err
	}
	c.endSlot()
	ctx, cancel := context.WithTimeout(c.r.Context(), wait)
	defer cancel()
	defer context.AfterFunc(c.stopping(), cancel)()
	job := desk.Take(ctx, ask.Worker)
	if job == nil {
		return http.StatusOK, &api.PlumbReply{}, nil
	}
	work := job.Work
	work.ID = job.ID
	return http.StatusOK, &work, nil
}

// plumbDone takes in what came of a piece of work.
func (s *Server) plumbDone(c *call) (int, any, error) {
	var ask api.PlumbDoneRequest
	if err := s.body(c, &ask); err != nil {
		return 0, nil, err
	}
	if ask.ID == "" {
		return 0, nil, field("id", "is missing: of the work")
	}
	c.endSlot()
	desk := s.cfg.Desk
	if strings.HasPrefix(ask.ID, slotJobs) {
		desk = s.cfg.SlotDesk
	}
	keep, live := desk.Report(c.ctx, ask.ID, ask)
	if !live { // who wanted it has left, and may have it all the same: by an earlier attach
		keep = s.usedBy(ask.Host)
	}
	return http.StatusOK, &api.PlumbDoneReply{Keep: keep}, nil
}

// deskFor is where a worker gets the work that it has the rights for. One that can do the work of
// ports and that of slots asks for each by itself: neither waits for the other.
func (s *Server) deskFor(verbs []string) (*Desk, error) {
	in := func(all []string) bool {
		return !slices.ContainsFunc(verbs, func(v string) bool { return !slices.Contains(all, v) })
	}
	switch {
	case in(api.PlumbVerbs()): // also none
		return s.cfg.Desk, nil
	case in(api.PlumbSlotVerbs()):
		return s.cfg.SlotDesk, nil
	}
	return nil, field("verbs", "%.80q are neither all of ports (%s) nor all of slots (%s)", verbs,
		strings.Join(api.PlumbVerbs(), ", "), strings.Join(api.PlumbSlotVerbs(), ", "))
}

// usedBy says whether an open lease is recorded at a port.
func (s *Server) usedBy(host string) bool {
	all, _ := s.cfg.Book.Leases()
	return host != "" && slices.ContainsFunc(all, func(l *netdb.Lease) bool { return l.State.Open() && l.HostInterface == host })
}

// plumbStatus says whether ports can be made.
func (s *Server) plumbStatus() *api.PlumbStatus {
	if s.cfg.Desk.Present() {
		return &api.PlumbStatus{Ready: true}
	}
	return &api.PlumbStatus{Why: attach.ErrNoHelper.Error(), Wanted: s.cfg.Desk.Wanted()}
}
