package server

import (
	"net/http"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/ipam"
)

// withheld lists the addresses that outlive their removed pools.
func (h *pools) withheld(c *call) (int, any, error) {
	q, err := c.query()
	if err != nil {
		return 0, nil, err
	}
	if q.Has("pool") && q.Get("pool") == "" {
		return 0, nil, field("pool", "is empty")
	}
	rev := h.book.Rev() // before the list: what came since is not denied
	all := h.book.Withheld()
	reply := &api.WithheldList{Withheld: []api.Withheld{}, Revision: rev, Epoch: h.book.Epoch()}
	return http.StatusOK, &listing{reply: reply, holds: withheldBytes * len(all), items: func(yield func(any, error) bool) {
		for i := range all {
			if of := q.Get("pool"); of != "" && of != all[i].Pool && of != all[i].PoolUID {
				continue
			}
			if !yield(withheldOf(&all[i]), nil) {
				return
			}
		}
	}}, nil
}

// withheldBytes is what one of a listing keeps in memory, and some.
const withheldBytes = 512

// withheldOf leaves out whose an address was that cools, as a lease that cools does: what is
// sent there has no receiver.
func withheldOf(w *ipam.Withheld) *api.Withheld {
	out := &api.Withheld{Address: w.Addr.String(), PrefixLength: w.PrefixLen, State: api.State(w.State), Since: w.Since.Wall.UTC(),
		Pool: w.Pool, PoolUID: w.PoolUID, LeaseID: w.LeaseID, Hold: w.Hold}
	if w.State == ipam.Quarantined {
		out.Sandbox, out.Evidence = w.Sandbox, evidence(w.Evidence)
	}
	return out
}
