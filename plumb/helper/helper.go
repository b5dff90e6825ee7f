// Package helper makes the ports that the daemon is asked for. It has the rights that
// the daemon shall not have, to enter network namespaces, and nothing else: no state,
// and no way to the book but the socket. Killed at any moment it leaves nothing that
// the next one, or the caller's next request, does not finish or take back.
package helper

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"net"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/internal/broadcast"
	"github.com/ipamd/ipamd/internal/share"
	"github.com/ipamd/ipamd/plumb"
)

// Daemon gives work; *client.Client is one.
type Daemon interface {
	PlumbWork(ctx context.Context, ask api.PlumbRequest) (*api.PlumbReply, error)
	PlumbDone(ctx context.Context, r api.PlumbDoneRequest) (*api.PlumbDoneReply, error)
}

const (
	// Hands is how many ports the kernel is asked for at once. To remove a link takes
	// it 15 to 30 ms, in which others are made.
	Hands = 8
	// slotLoops is how many pieces of work on slots are under way: while the daemon records
	// one, and gives the next, the kernel works on others.
	slotLoops = 2 * Hands
	// poll is how long the daemon lets a question for work wait.
	poll = 30 * time.Second
	// patience bounds one piece of work.
	patience = 20 * time.Second
	// pause is between two questions when the daemon does not answer.
	pause = 500 * time.Millisecond
	// sweepEvery is how often a helper that goes on looks for what was never reported: a
	// daemon that was stopped at that moment has left some, too.
	sweepEvery = 5 * time.Minute
)

// Run does the daemon's work on ports until ctx ends. It takes away the ports that were made and
// never reported, before any work and from time to time between.
func Run(ctx context.Context, daemon Daemon, leases Leases, log *slog.Logger) error {
	h := &hand{daemon: daemon, log: log, worker: rand.Text()}
	for h.sweep(ctx, leases) != nil && ctx.Err() == nil {
		broadcast.Pause(ctx, pause)
	}
	go h.sweeps(ctx, leases, sweepEvery)
	return run(ctx, Hands, h)
}

// RunSlots makes and takes down warm slots until ctx ends. It needs the right to mount, in the
// mount namespace in which sandboxes find their network namespaces.
func RunSlots(ctx context.Context, daemon Daemon, log *slog.Logger) error {
	return run(ctx, slotLoops, &hand{daemon: daemon, log: log, worker: rand.Text(), verbs: api.PlumbSlotVerbs()})
}

func run(ctx context.Context, loops int, h *hand) error {
	h.hands, h.announcers = make(chan struct{}, Hands), make(chan struct{}, Hands)
	defer h.announcing.Wait()
	var g errgroup.Group
	for range loops {
		g.Go(func() error { h.loop(ctx); return nil })
	}
	return g.Wait()
}

type hand struct {
	daemon Daemon
	log    *slog.Logger
	worker string
	verbs  []string      // that it has the rights for; nil: those of ports
	hands  chan struct{} // one for each that is with the kernel
	// owners has one piece of work at a time done on an owner's port, from its making to the answer
	// to its report, and the removal that may follow. Two at once undo each other: one ends as the
	// other has made an address already, and takes away the port that the other was answered to have.
	owners share.Keyed[string]
	newest newest
	// announcing is what is announced beside the work, by as many at once as announcers has room for.
	announcing sync.WaitGroup
	announcers chan struct{}
}

// sweeps sweeps again and again until ctx ends.
func (h *hand) sweeps(ctx context.Context, leases Leases, every time.Duration) {
	for broadcast.Pause(ctx, every) {
		_ = h.sweep(ctx, leases) // the next one asks again
	}
}

// plumb does what asks the kernel, of which no more than [Hands] are done at once.
func (h *hand) plumb(do func()) {
	h.hands <- struct{}{}
	defer func() { <-h.hands }()
	do()
}

func (h *hand) loop(ctx context.Context) {
	for ctx.Err() == nil {
		work, err := h.daemon.PlumbWork(ctx, api.PlumbRequest{Worker: h.worker, Wait: api.Lasting(poll), Verbs: h.verbs})
		switch {
		case ctx.Err() != nil:
		case err != nil:
			h.log.Warn("no work can be had", "err", err)
			broadcast.Pause(ctx, pause)
		case work.ID != "":
			h.do(context.WithoutCancel(ctx), work) // what was begun is finished
		}
	}
}

func (h *hand) do(ctx context.Context, work *api.PlumbReply) {
	unlock, err := h.owners.Lock(ctx, work.Owner)
	if err != nil {
		return
	}
	defer unlock()
	if port := work.Verb == api.PlumbAttach || work.Verb == api.PlumbDetach; port && h.newest.passed(work.Owner, work.ID) {
		_, _ = h.daemon.PlumbDone(ctx, report(work, plumb.Port{}, errPassed)) // its caller has left
		return
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	switch work.Verb {
	case api.PlumbAttach:
		var made *plumb.Spec
		if made, err = h.attach(ctx, work); made != nil {
			unlock() // the bridge may take a second until it forwards
			err = announce(ctx, *made)
		}
	case api.PlumbDetach:
		h.plumb(func() { err = plumb.Remove(ctx, host(work), work.Owner) })
		_, failed := h.daemon.PlumbDone(ctx, report(work, plumb.Port{}, err))
		err = errors.Join(err, failed)
	default:
		var made *plumb.Spec
		if made, err = h.slot(ctx, work); made != nil {
			h.announceSlot(*made)
		}
	}
	if err != nil {
		h.failed(work.Verb, work.Owner, work.Netns, err)
	}
}

func (h *hand) failed(verb, owner, netns string, err error) {
	h.log.Warn("a port could not be plumbed", "verb", verb, "owner", owner, "netns", netns, "err", err)
}

// host is the name of the bridge's end.
func host(work *api.PlumbReply) string {
	switch {
	case work.Host != "":
		return work.Host
	case len(work.Leases) > 0 && work.Leases[0].HostInterfaceName != "":
		return work.Leases[0].HostInterfaceName
	}
	return plumb.HostName(work.Owner)
}

// attach makes a port and reports it. What it returns is to be announced; nil: nothing is.
func (h *hand) attach(ctx context.Context, work *api.PlumbReply) (*plumb.Spec, error) {
	spec, err := plumb.Describe(work.Leases, work.Networks)
	var port plumb.Port
	if err == nil {
		spec.Owner, spec.Host, spec.Netns, spec.Tap = work.Owner, host(work), work.Netns, work.Tap
		if work.MAC != "" {
			spec.MAC, err = net.ParseMAC(work.MAC)
		}
	}
	if err == nil {
		h.plumb(func() { port, err = plumb.Make(ctx, spec) })
	}
	verdict, failed := h.daemon.PlumbDone(ctx, report(work, port, err))
	switch {
	case err != nil || failed != nil:
		return nil, errors.Join(err, failed) // made and not reported: the next attach finishes it
	case !verdict.Keep:
		return nil, plumb.Remove(ctx, spec.Host, spec.Owner)
	}
	return &spec, nil
}

func announce(ctx context.Context, spec plumb.Spec) error {
	if spec.Tap { // the machine announces itself
		return nil
	}
	err := plumb.Announce(ctx, spec)
	if err == nil {
		return nil
	}
	if diffs, read := plumb.Check(ctx, spec); read == nil && len(diffs) > 0 {
		return nil // it is detached already: there is nothing to announce
	}
	return err
}

// report is what the daemon receives. Of a namespace that has the interface already the
// caller's field is to blame: it is one of another network.
func report(work *api.PlumbReply, port plumb.Port, err error) api.PlumbDoneRequest {
	r := api.PlumbDoneRequest{ID: work.ID, Host: port.Host}
	if port.MAC != nil {
		r.MAC = port.MAC.String()
	}
	if err == nil {
		return r
	}
	r.Error = err.Error()
	if wrong := new(plumb.FieldError); errors.As(err, &wrong) {
		switch wrong.Field {
		case "netns", "mac":
			r.Field = wrong.Field
		case "guest":
			r.Field = "netns"
		case "host": // a port that was made by another
			r.Field = "host_interface"
		}
	}
	return r
}
