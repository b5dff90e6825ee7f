package reconciler

import (
	"time"

	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/netdb"
)

// leastCensuses is how many complete censuses must agree that a quarantined
// address is dark, however long it has been.
const leastCensuses = 3

// darkness is what was observed of one quarantined lease since it was last
// seen. It is kept in memory only: a restart starts again.
type darkness struct {
	since    netdb.Stamp
	censuses int
}

// A clear lets one quarantined address cool.
type clear struct {
	lease *netdb.Lease
}

// quarantined decides which quarantined addresses have been dark long enough.
// before is what earlier passes observed; what this one knows comes back. A
// census that a witness is missing from proves nothing and counts for
// nothing; one sighting starts all over.
func quarantined(book []*netdb.Lease, c census.Census, before map[string]darkness, least time.Duration, now netdb.Stamp) ([]clear, map[string]darkness) {
	var actions []clear
	after := make(map[string]darkness)
	for _, l := range book {
		if l.State != netdb.Quarantined || len(c.Seen[l.Addr]) > 0 {
			continue
		}
		d, known := before[l.ID]
		if !c.Complete() {
			if known {
				after[l.ID] = d
			}
			continue
		}
		if !known {
			d.since = now
		}
		d.censuses = min(d.censuses+1, leastCensuses)
		after[l.ID] = d
		if d.censuses >= leastCensuses && now.Since(d.since) >= least {
			actions = append(actions, clear{l})
		}
	}
	return actions, after
}
