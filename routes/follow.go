package routes

import (
	"context"
	"fmt"
	"time"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/client"
)

// listPause is the least time between two lists that the table asks for.
const listPause = time.Second

// Follow keeps the table as the daemon's book is, until ctx ends. note gets what
// interrupts it, and leases that cannot be read, for a log; nil: none.
func (t *Table) Follow(ctx context.Context, c *client.Client, note func(error)) {
	if note == nil {
		note = func(error) {}
	}
	for ctx.Err() == nil {
		for u := range c.Watch(ctx, client.WatchFilter{Kinds: []api.Kind{api.KindLease}}) {
			if u.Err != nil {
				note(u.Err)
			} else if err := t.take(u, note); err != nil {
				note(err)
				break // and begin with a list
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(listPause):
		}
	}
}

// take takes in a step of a watch. An error asks for a list.
func (t *Table) take(u client.Update, note func(error)) error {
	switch {
	case u.List != nil:
		l := List{Epoch: u.List.Epoch, Revision: u.List.Revision}
		for _, lease := range u.List.Leases {
			if !Kept(lease.State) {
				continue
			}
			if lease.PrefixLength != 0 {
				continue // packets are sent to an address
			}
			r, err := OfLease(lease)
			if err != nil {
				note(fmt.Errorf("lease %s: %w", lease.ID, err))
				continue
			}
			l.Routes = append(l.Routes, r)
		}
		return t.Replace(l)
	case u.Event.Type == api.EventBookmark:
		return t.Bookmark(u.Event.Epoch, u.Event.Revision)
	case u.Event.Kind != api.KindLease || u.Event.Change == nil:
		return nil
	case u.Event.Change.PrefixLength != 0:
		return t.Bookmark(u.Event.Epoch, u.Event.Revision)
	}
	r, err := OfChange(*u.Event.Change)
	if err != nil {
		note(fmt.Errorf("revision %d: %w", u.Event.Revision, err))
		return nil
	}
	return t.Apply(u.Event.Epoch, r)
}
