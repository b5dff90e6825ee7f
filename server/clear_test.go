package server_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/netip"
	"testing"

	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/client"
	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/netdb/netdbtest"
	"github.com/ipamd/ipamd/server"
	"github.com/ipamd/ipamd/server/servertest"
)

// P4: while any witness is silent, an operator clears nothing either. P5, P7: the
// board is asked inside the transaction, and the row is the one that was read.
func TestF9NothingIsClearedUnlessAllAnswer(t *testing.T) {
	ctx := context.Background()
	addr := netip.MustParseAddr("10.8.64.9")
	broken := errors.New("the dump was interrupted")
	for _, row := range []struct {
		name   string
		before func(*servertest.Rig) // the request
		after  func(*servertest.Rig) // the row was read, and before the transaction
		want   error
	}{
		{name: "all witnesses answer"},
		{name: "a kernel witness is silent", want: client.ErrEvidenceUnavailable,
			before: func(r *servertest.Rig) { r.Board.Silence(census.Netns, broken) }},
		{name: "the runtime is silent", want: client.ErrEvidenceUnavailable,
			before: func(r *servertest.Rig) { r.Board.Silence(census.Runtime, broken) }},
		{name: "the wire was not read yet", want: client.ErrEvidenceUnavailable,
			before: func(r *servertest.Rig) { r.Board.Silence(census.Probe, broken) }},
		{name: "it is seen", want: client.ErrStateNotAllowed,
			before: func(r *servertest.Rig) { see(r, addr) }},
		{name: "it is seen since the row was read", want: client.ErrStateNotAllowed,
			after: func(r *servertest.Rig) { see(r, addr) }},
		{name: "the runtime fell silent since the row was read", want: client.ErrEvidenceUnavailable,
			after: func(r *servertest.Rig) { r.Board.Silence(census.Runtime, broken) }},
		{name: "it was quarantined anew since the row was read", want: client.ErrLeaseGone,
			after: func(r *servertest.Rig) {
				_, err := netdbtest.Clear(r.Book, addr)
				_, also := r.Book.Quarantine(ctx, netdbtest.Who(ipam.ByAllocator, ipam.SeenOnWire), addr, json.RawMessage(`[{"witness":"probe"}]`))
				if err := errors.Join(err, also); err != nil {
					t.Error(err)
				}
			}},
		{name: "it was cleared since the row was read", want: client.ErrStaleRevision,
			after: func(r *servertest.Rig) {
				if _, err := netdbtest.Clear(r.Book, addr); err != nil {
					t.Error(err)
				}
			}},
	} {
		t.Run(row.name, func(t *testing.T) {
			var r *servertest.Rig
			rev := int64(0)
			r = servertest.Start(t, func(cfg *server.Config) {
				cfg.Book = interrupted{cfg.Book, func() {
					if row.after != nil {
						row.after(r)
					}
					rev = r.Book.Rev()
				}}
			})
			c := &client.Client{Socket: r.Socket}
			defer c.CloseIdleConnections()
			if _, err := c.Quarantine(ctx, addr.String(), "printer"); err != nil {
				t.Fatal(err)
			}
			rev = r.Book.Rev()
			if row.before != nil {
				row.before(r)
			}
			_, err := c.Clear(ctx, addr.String())
			if !errors.Is(err, row.want) {
				t.Errorf("clear: %v, want %v", err, row.want)
			}
			if now := r.Book.Rev(); err != nil && now != rev || err == nil && now != rev+1 {
				t.Errorf("the book is at %d after %d", now, rev)
			}
		})
	}
}

func see(r *servertest.Rig, addr netip.Addr) {
	r.Board.ReplaceScope(census.Netns, "7", []census.Sighting{{Addr: addr, Port: "veth7"}})
}

// An interrupted book has something happen between a look at a row and the
// transaction that clears it.
type interrupted struct {
	server.Book
	meanwhile func()
}

func (b interrupted) ClearAt(ctx context.Context, who ipam.Who, id string, rev int64, unseen func() error) (*ipam.Lease, error) {
	b.meanwhile()
	return b.Book.ClearAt(ctx, who, id, rev, unseen)
}

// P4: a delegated prefix is not cleared while any address of it is seen, whichever the operator names.
func TestF9APrefixIsClearedWhole(t *testing.T) {
	ctx := context.Background()
	r := servertest.Start(t)
	l := netdbtest.ReservePrefix(t, r.Book, "a", 28)
	l, err := r.Book.Release(ctx, netdbtest.Who(ipam.ByClient, "released"), l.ID, "", 0)
	if err == nil {
		_, err = r.Book.QuarantineReleasing(ctx, netdbtest.Who(ipam.ByWatchdog, "still_on_the_wire"), l.ID, l.Rev, json.RawMessage(`[{"witness":"probe"}]`))
	}
	if err != nil {
		t.Fatal(err)
	}
	c := &client.Client{Socket: r.Socket}
	defer c.CloseIdleConnections()
	see(r, l.Addr.Next())
	if _, err := c.Clear(ctx, l.Addr.String()); !errors.Is(err, client.ErrStateNotAllowed) {
		t.Errorf("cleared while an address of it is seen: %v", err)
	}
	r.Board.ReplaceScope(census.Netns, "7", nil)
	if _, err := c.Clear(ctx, l.Addr.Next().String()); err != nil {
		t.Error(err)
	}
}
