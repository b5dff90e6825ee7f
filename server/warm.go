package server

import (
	"net/http"
	"slices"
	"strings"

	"github.com/ipamd/ipamd/allocator"
	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/ipam"
)

// warmOf is how a request wants a warm slot; nil: not at all.
func warmOf(ask *api.AllocateRequest) (*allocator.Warm, error) {
	w := ask.Warm
	policy, empty := w.Policy, w.OnEmpty
	if policy == "" {
		policy = api.WarmPrefer
	}
	if !slices.Contains([]api.WarmPolicy{api.WarmPrefer, api.WarmRequire, api.WarmNever}, policy) {
		return nil, field("warm.policy", "%.40q is none of prefer, require, never", policy)
	}
	if empty == "" {
		empty = api.OnEmptyCold
		if policy == api.WarmRequire {
			empty = api.OnEmptyFail
		}
	}
	if !slices.Contains([]api.OnEmpty{api.OnEmptyCold, api.OnEmptyWait, api.OnEmptyFail}, empty) {
		return nil, field("warm.on_empty", "%.40q is none of cold, wait, fail", empty)
	}
	if policy == api.WarmRequire && empty == api.OnEmptyCold {
		return nil, field("warm.on_empty", "is cold, and the policy requires a slot: say wait or fail, or prefer one")
	}
	wait, err := duration("warm.wait", w.Wait)
	switch {
	case err != nil:
		return nil, err
	case wait > longestWait:
		return nil, field("warm.wait", "%q is longer than %v", w.Wait, longestWait)
	case empty == api.OnEmptyWait && wait == 0:
		return nil, field("warm.wait", "is missing: how long on_empty waits, at most %v", longestWait)
	case empty != api.OnEmptyWait && wait != 0:
		return nil, field("warm.wait", "is there, and on_empty is %s: say wait", empty)
	}
	if h := w.ClientSpecHash; h != "" && (len(h) > 200 || !strings.Contains(h, ":")) {
		return nil, field("warm.client_spec_hash", "%.80q is no hash with its algorithm, like sha256:9f86…", h)
	}
	if policy == api.WarmNever {
		return nil, nil
	}
	for name, is := range map[string]bool{"address": ask.Address != "", "prefix_length": ask.PrefixLength != 0,
		"host_interface_name": ask.HostInterfaceName != "", "bind": ask.Bind != nil, "netns": ask.Netns != "", "attach": ask.Attach != nil && (policy == api.WarmRequire || ask.Attach.Tap)} {
		if is {
			return nil, field("warm", "is beside %s, which a slot that is ready cannot follow: leave one of them out", name)
		}
	}
	if ask.Family == api.Dual { // there is never one: as where none is ready, but that none is waited for
		if policy == api.WarmRequire || empty == api.OnEmptyFail {
			return nil, field("family", "is dual, and a warm slot has one address: ask for v4 or v6, or for policy prefer with on_empty cold")
		}
		return nil, nil
	}
	return &allocator.Warm{Require: policy == api.WarmRequire, Fail: empty == api.OnEmptyFail, Wait: wait, SpecHash: w.ClientSpecHash}, nil
}

// warm lists the slots.
func (h *pools) warm(c *call) (int, any, error) {
	q, err := c.query()
	if err != nil {
		return 0, nil, err
	}
	pools := make(map[string]*ipam.Pool)
	isStale := make(map[string]func(*ipam.Slot, string) (bool, error))
	for _, p := range h.book.Pools() {
		pools[p.UID], isStale[p.UID] = p, p.Staleness(h.profile(p.Bridge))
	}
	rev := h.book.Rev() // before the slots: what came since is not denied
	list := &api.SlotList{Slots: []api.Slot{}, Revision: rev, Epoch: h.book.Epoch()}
	for _, slot := range h.book.Slots() {
		l, err := h.book.Lease(slot.LeaseID)
		if err != nil { // it ended just now
			continue
		}
		p := pools[l.PoolUID]
		one := api.Slot{Slot: slot.ID, State: slotState(slot, l), Address: l.Addr.String(), LeaseID: l.ID, Interface: l.Interface, Netns: slot.Netns,
			HostInterface: l.HostInterface, SpecHash: slot.SpecHash, Broken: slot.Broken, Since: h.wire(l, 0).Since}
		if p != nil {
			one.Pool = p.Name
			stale, err := isStale[p.UID](slot, l.Interface)
			one.Stale = stale && err == nil
		}
		if slot.Claimed {
			one.Sandbox = l.Sandbox
		}
		if want := q.Get("pool"); want == "" || want == one.Pool {
			list.Slots = append(list.Slots, one)
		}
	}
	return http.StatusOK, list, nil
}

func slotState(slot *ipam.Slot, l *ipam.Lease) api.SlotState {
	switch {
	case slot.Claimed:
		return api.SlotClaimed
	case slot.Ready(l):
		return api.SlotReady
	case l.State == ipam.Reserved:
		return api.SlotMaking
	}
	return api.SlotEnding
}
