package client_test

import (
	"net/netip"
	"sync/atomic"
	"testing"

	"github.com/ipamd/ipamd/client"
	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/server"
)

// large is a book of 10 000 leases, which changes with each listing or does not.
type large struct {
	server.Book
	changes bool
	asked   atomic.Int64
}

func (b *large) Leases() ([]*ipam.Lease, int64) {
	n, rev := b.asked.Add(1), int64(1)
	if b.changes {
		rev = n
	}
	out, a := make([]*ipam.Lease, 10_000), netip.MustParseAddr("10.9.0.0")
	for i := range out {
		out[i], a = &ipam.Lease{Addr: a, Sandbox: "s", State: ipam.Bound, Rev: rev}, a.Next()
	}
	return out, rev
}

// G12: a listing is of one revision, however many pages it comes in: where the book
// changes between two, all is asked for at once.
func TestG12ListingsAreOfOneRevision(t *testing.T) {
	for name, tt := range map[string]struct {
		changes bool
		asked   int64
	}{"a quiet book": {false, 3}, "a book that changes": {true, 3}} {
		t.Run(name, func(t *testing.T) {
			var book *large
			_, c := start(t, func(cfg *server.Config) {
				book = &large{Book: cfg.Book, changes: tt.changes}
				cfg.Book = book
			})
			list, err := c.Leases(t.Context(), client.LeaseFilter{Sandbox: "s"})
			if err != nil || len(list.Leases) != 10_000 || list.Next != "" || book.asked.Load() != tt.asked {
				t.Fatalf("%d leases in %d answers, %v", len(list.Leases), book.asked.Load(), err)
			}
			for i, l := range list.Leases {
				if l.Revision != list.Revision || i > 0 && !netip.MustParseAddr(list.Leases[i-1].Address).Less(netip.MustParseAddr(l.Address)) {
					t.Fatalf("%s is of revision %d in a listing of %d", l.Address, l.Revision, list.Revision)
				}
			}
		})
	}
}
