package binding

import (
	"context"

	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/reconciler"
)

// A Record writes that a lease is paused, or bound again.
type Record = func(ctx context.Context, who ipam.Who, id string, ifRev int64) (*ipam.Lease, error)

// Asleep is the book as the reconciler writes pauses: whether tasks that ipamd itself pauses
// stand still is asked of them first.
type Asleep struct {
	reconciler.Book
	Seen func(ctx context.Context, who ipam.Who, id string, ifRev int64, frozen bool, record Record) (*ipam.Lease, error)
}

// Pause is [netdb.Book.Pause].
func (b Asleep) Pause(ctx context.Context, who ipam.Who, id string, ifRev int64) (*ipam.Lease, error) {
	return b.Seen(ctx, who, id, ifRev, true, b.Book.Pause)
}

// Resume is [netdb.Book.Resume].
func (b Asleep) Resume(ctx context.Context, who ipam.Who, id string, ifRev int64) (*ipam.Lease, error) {
	return b.Seen(ctx, who, id, ifRev, false, b.Book.Resume)
}
