package wake

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/netdb"
	"github.com/ipamd/ipamd/netdb/netdbtest"
)

// unwritable is a book that cannot record a step of a flight.
type unwritable struct {
	*netdb.Book
	takes bool
	asked atomic.Int64
}

var errFull = errors.New("the disk is full")

func (b *unwritable) Land(context.Context, ipam.Who, string, string, ipam.FlightResult, string) (*ipam.Lease, error) {
	b.asked.Add(1)
	return nil, errFull
}

func (b *unwritable) TakeOn(ctx context.Context, who ipam.Who, id, flight string) (*ipam.Lease, error) {
	if b.takes {
		return b.Book.TakeOn(ctx, who, id, flight)
	}
	b.asked.Add(1)
	return nil, errFull
}

// runs is a resumer whose sandbox runs.
type runs struct{}

func (runs) Resume(context.Context, *ipam.Lease, *ipam.Sleep) error { return nil }

// A flight whose steps cannot be recorded is tried again once a second, not as fast as the book
// refuses.
func TestAFlightThatCannotBeRecorded(t *testing.T) {
	for name, takes := range map[string]bool{"its begin": false, "its end": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := &unwritable{Book: netdbtest.Open(t), takes: takes}
			l := (&world{book: b.Book}).asleep(t, "a")
			f, err := New(Config{Book: b, Resumer: runs{}, Wait: time.Minute, Log: slog.New(slog.DiscardHandler)})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			defer cancel()
			if _, _, err := f.Wake(ctx, netdbtest.Who(ipam.ByClient, "asked"), l.ID, ipam.Cause{By: ipam.ByCall}, nil); err != nil {
				t.Fatal(err)
			}
			if err := f.Run(ctx); err != nil {
				t.Fatal(err)
			}
			if n := b.asked.Load(); n < 1 || n > 3 {
				t.Errorf("the book was asked %d times in two seconds", n)
			}
		})
	}
}
