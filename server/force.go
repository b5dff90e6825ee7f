package server

import (
	"slices"
	"strings"
	"time"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/workload"
)

// forceRelease quarantines the address of a releasing lease whose removal
// cannot be confirmed. What is in the way is recorded as the evidence: of each
// container that the lease records, and what the witnesses see.
func (h *leases) forceRelease(c *call) (int, any, error) {
	var ask api.ForceReleaseRequest
	return h.onLease(c, &ask, &ask.IfRevision, func(id string, ifRev int64) (*ipam.Lease, error) {
		l, err := h.book.Lease(id)
		if err != nil {
			return nil, err
		}
		return h.book.ForceRelease(c.ctx, c.operator(ipam.Forced, ask.Reason), id, ifRev, h.unconfirmed(l))
	})
}

// unconfirmed is the evidence of a removal that was forced.
func (h *leases) unconfirmed(l *ipam.Lease) []byte {
	var why []string
	if l.State == ipam.Releasing {
		for _, b := range h.releaser.Blockers(l) {
			why = append(why, b.Detail)
		}
	}
	of := census.Sighting{Addr: l.Addr, Witness: census.Book, At: time.Now(), Port: l.HostInterface, MAC: l.MAC,
		Sandbox: l.Sandbox, UID: l.UID, LeaseID: l.ID, Note: strings.Join(why, "; ")}
	evidence := slices.Clone(workload.About(h.witnesses, l).Seen)
	for _, k := range l.Containers {
		of.Namespace, of.Container = k.Namespace, k.ID
		evidence = append(evidence, of)
		of.Note = "" // once is enough
	}
	if len(l.Containers) == 0 {
		evidence = append(evidence, of)
	}
	return marshal(evidence)
}
