package binding

import (
	"context"

	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/reconciler"
)

// A RecordPause writes to the book that a lease is paused, or that it is bound again.
type RecordPause = func(ctx context.Context, who ipam.Who, id string, ifRev int64) (*ipam.Lease, error)

// PausingBook is the book as the reconciler writes pauses to it. A pass decides by what it saw some
// time ago; where ipamd itself pauses the tasks, they are asked again before the pause is written.
type PausingBook struct {
	reconciler.Book
	// RecordSeen calls record unless the tasks of the lease contradict frozen by now; *wake.Flights
	// has it as Seen.
	RecordSeen func(ctx context.Context, who ipam.Who, id string, ifRev int64, frozen bool, record RecordPause) (*ipam.Lease, error)
}

// Pause is [netdb.Book.Pause], behind RecordSeen.
func (b PausingBook) Pause(ctx context.Context, who ipam.Who, id string, ifRev int64) (*ipam.Lease, error) {
	return b.RecordSeen(ctx, who, id, ifRev, true, b.Book.Pause)
}

// Resume is [netdb.Book.Resume], behind RecordSeen.
func (b PausingBook) Resume(ctx context.Context, who ipam.Who, id string, ifRev int64) (*ipam.Lease, error) {
	return b.RecordSeen(ctx, who, id, ifRev, false, b.Book.Resume)
}
