package server

import (
	"net/http"

	"github.com/ipamd/ipamd/allocator"
	"github.com/ipamd/ipamd/api"
)

// allocate answers 201 for a new lease and 200 for one that was there.
func (s *Server) allocate(c *call) (int, any, error) {
	var ask api.AllocateRequest
	if err := s.body(c, &ask); err != nil {
		return 0, nil, err
	}
	c.sandbox, c.address = ask.Sandbox, ask.Address
	want := allocator.Request{
		Sandbox: ask.Sandbox, UID: ask.UID, Attempt: ask.Attempt, Pool: ask.Pool,
		Family: allocator.Family(ask.Family), Interface: ask.Interface, PrefixLen: ask.PrefixLength, HostName: ask.HostInterfaceName, Labels: ask.Labels, Peer: c.peer.Name,
	}
	var err error
	if ask.Address != "" {
		if want.Address, err = address("address", ask.Address); err != nil {
			return 0, nil, err
		}
	}
	if want.BindWithin, err = duration("bind_within", ask.BindWithin); err != nil {
		return 0, nil, err
	}
	given, err := s.cfg.Allocator.Allocate(c.ctx, want)
	if err != nil {
		return 0, nil, err
	}
	reply := &api.AllocateReply{
		Leases:   make([]api.Lease, len(given.Leases)),
		Networks: make([]api.Network, len(given.Leases)),
		Existing: given.Existing, EarlyReuse: given.EarlyReuse,
		Skipped: skipped(given.Skipped), Claimed: skipped(given.Claimed), Unprobed: texts(given.Unprobed),
		Revision: s.cfg.Book.Rev(), Epoch: s.cfg.Book.Epoch(),
	}
	for i, l := range given.Leases {
		reply.Leases[i] = s.wire(l, given.Pools[i].Prefix.Bits())
		reply.Networks[i] = s.network(given.Pools[i])
	}
	if given.Existing {
		return http.StatusOK, reply, nil
	}
	return http.StatusCreated, reply, nil
}
