package helper

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/plumb"
)

// slot does a piece of work on a warm slot, and reports it. What it returns is to be announced; nil: nothing is.
func (h *hand) slot(ctx context.Context, work *api.PlumbReply) (*plumb.Spec, error) {
	var r api.PlumbDoneRequest
	var spec plumb.Spec
	var err error
	owned := cmp.Or(work.Host, plumb.HostName(work.Owner))
	switch work.Verb {
	case api.PlumbSlotMake:
		var port plumb.Port
		if spec, err = slotSpec(work); err == nil {
			h.plumb(func() { port, err = plumb.MakeSlot(ctx, work.Runner, spec) })
		}
		r = report(work, port, err)
		r.Inode = port.Inode
	case api.PlumbSlotCheck:
		r, err = checked(ctx, work)
	case api.PlumbSlotRemove:
		h.plumb(func() { err = plumb.RemoveSlot(ctx, work.Runner, work.Netns, owned, work.Owner) })
		r = report(work, plumb.Port{}, err)
	case api.PlumbSlotList:
		var paths []string
		paths, err = plumb.SlotPaths(work.Runner)
		r = report(work, plumb.Port{}, err)
		r.Paths = paths
	default:
		err = fmt.Errorf("%q is no work on slots", work.Verb)
		r = report(work, plumb.Port{}, err)
	}
	verdict, failed := h.daemon.PlumbDone(ctx, r)
	switch {
	case err != nil || failed != nil: // made and not reported: the daemon has it made again, or taken down
		return nil, errors.Join(err, failed)
	case work.Verb != api.PlumbSlotMake:
		return nil, nil
	case !verdict.Keep:
		return nil, plumb.RemoveSlot(ctx, work.Runner, work.Netns, owned, work.Owner)
	}
	return &spec, nil
}

// announceSlot announces a slot beside the work on others, of which none waits for the bridge.
func (h *hand) announceSlot(spec plumb.Spec) {
	h.announcing.Go(func() {
		h.announcers <- struct{}{}
		defer func() { <-h.announcers }()
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := announce(ctx, spec); err != nil {
			h.failed(api.PlumbSlotMake, spec.Owner, spec.Netns, err)
		}
	})
}

// slotSpec describes a slot's port.
func slotSpec(work *api.PlumbReply) (plumb.Spec, error) {
	spec, err := plumb.Describe(work.Leases, work.Networks)
	if err != nil {
		return plumb.Spec{}, err
	}
	spec.Owner, spec.Host, spec.Netns = work.Owner, cmp.Or(work.Host, plumb.HostName(work.Owner)), work.Netns
	if work.MAC != "" {
		spec.MAC, err = net.ParseMAC(work.MAC)
	}
	return spec, err
}

// checked says how a slot differs from what it was made as.
func checked(ctx context.Context, work *api.PlumbReply) (api.PlumbDoneRequest, error) {
	spec, err := slotSpec(work)
	var diffs []plumb.Difference
	if err == nil {
		diffs, err = plumb.CheckSlot(ctx, spec)
	}
	r := report(work, plumb.Port{}, err)
	for _, d := range diffs {
		r.Differences = append(r.Differences, d.String())
	}
	return r, err
}
