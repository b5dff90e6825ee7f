package server

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/attach"
	"github.com/ipamd/ipamd/ipam"
)

// ErrNoWarmHelper means that no process makes namespaces. It is an [attach.ErrNoHelper].
var ErrNoWarmHelper error = noWarmHelper{}

type noWarmHelper struct{}

func (noWarmHelper) Error() string {
	return "the warm helper is not running, which makes and takes down namespaces: systemctl start ipamd-warm"
}

func (noWarmHelper) Unwrap() error { return attach.ErrNoHelper }

// slotJobs begins the ids of work on slots.
const slotJobs = "slot-"

// NewSlotDesk is where the helper that makes warm slots gets its work.
func NewSlotDesk() *Desk { return &Desk{Prefix: slotJobs, None: ErrNoWarmHelper} }

// A SlotHelper has warm slots made and taken down by the helper that has the rights.
type SlotHelper struct{ ports *ports }

// NewSlotHelper is the daemon's side of the helper. It needs the Book, SlotDesk, NetnsInode, MTU and
// LastTraffic that a server is made of, and no server.
func NewSlotHelper(c Config) SlotHelper { return SlotHelper{newPorts(&c, newView(&c))} }

// Present says whether a helper asks for work.
func (h SlotHelper) Present() bool { return h.ports.slotDesk.Present() }

// Arrived has a value after a helper came.
func (h SlotHelper) Arrived() <-chan struct{} { return h.ports.slotDesk.Arrived() }

// Make has a slot's namespace and port made, and binds its lease by what was made. What was
// made and could not be bound is taken down again.
func (h SlotHelper) Make(ctx context.Context, who ipam.Who, l *ipam.Lease, slot *ipam.Slot, pool *ipam.Pool) error {
	work := h.of(api.PlumbSlotMake, l, slot, pool)
	if wish, err := slot.Plumbing(); err == nil && wish.MTU != 0 { // as recorded, also where the bridge's is another since
		work.Networks[0].MTU = wish.MTU
	}
	return h.do(ctx, work, func(r api.PlumbDoneRequest) (bool, error) {
		seen, err := h.ports.netnsInode(ctx, slot.Netns)
		if err != nil {
			return false, fmt.Errorf("look at the namespace that the helper made: %w", err)
		}
		if seen != r.Inode {
			return false, fmt.Errorf("%s is not the namespace that the helper made: what it mounts has to be seen by all processes (systemctl cat ipamd-warm)", slot.Netns)
		}
		_, err = h.ports.book.BindEach(ctx, who, []string{l.ID}, 0, ipam.Binding{Netns: slot.Netns, HostInterface: r.Host, MAC: r.MAC})
		if err != nil {
			return h.ports.has(work, r), err
		}
		return true, nil
	})
}

// Check returns how a slot differs from what it was made as, a sentence each.
func (h SlotHelper) Check(ctx context.Context, l *ipam.Lease, slot *ipam.Slot, pool *ipam.Pool) (differences []string, err error) {
	work := h.of(api.PlumbSlotCheck, l, slot, pool)
	work.Host, work.MAC = l.HostInterface, l.MAC
	if made, err := slot.Plumbing(); err == nil { // the pool may be another by now, and slots of before still be given
		work.Networks[0] = h.ports.madeBy(made)
		if prefix, err := netip.ParsePrefix(made.Prefix); err == nil {
			work.Leases[0] = h.ports.wire(l, prefix.Bits())
		}
	}
	err = h.do(ctx, work, func(r api.PlumbDoneRequest) (bool, error) {
		differences = r.Differences
		return true, nil
	})
	return differences, err
}

// Remove has a slot's namespace taken down, and the port that was made with it.
func (h SlotHelper) Remove(ctx context.Context, netns string) error {
	return h.do(ctx, api.PlumbReply{Verb: api.PlumbSlotRemove, Runner: h.runner(), Owner: ipam.SlotPort(netns), Netns: netns},
		func(api.PlumbDoneRequest) (bool, error) { return true, nil })
}

// List returns the paths of the namespaces that are there and named as this runner's slots are.
func (h SlotHelper) List(ctx context.Context) (paths []string, err error) {
	err = h.do(ctx, api.PlumbReply{Verb: api.PlumbSlotList, Runner: h.runner()}, func(r api.PlumbDoneRequest) (bool, error) {
		paths = r.Paths
		return true, nil
	})
	return paths, err
}

func (h SlotHelper) runner() string { return h.ports.book.Identity().RunnerUID }

// of is work on the slot of a lease, in the pool as the caller has read it.
func (h SlotHelper) of(verb string, l *ipam.Lease, slot *ipam.Slot, pool *ipam.Pool) api.PlumbReply {
	return api.PlumbReply{Verb: verb, Runner: h.runner(), Owner: slot.Port(), Netns: slot.Netns,
		Leases: []api.Lease{h.ports.wire(l, pool.Prefix.Bits())}, Networks: []api.Network{h.ports.network(pool)}}
}

func (h SlotHelper) do(ctx context.Context, work api.PlumbReply, take func(api.PlumbDoneRequest) (bool, error)) error {
	err := h.ports.slotDesk.Do(ctx, work, func(r api.PlumbDoneRequest) (bool, error) {
		if r.Error != "" {
			return false, errors.New(r.Error)
		}
		return take(r)
	})
	if err != nil && !errors.Is(err, attach.ErrNoHelper) {
		return fmt.Errorf("%s: %w", work.Verb, err)
	}
	return err
}
