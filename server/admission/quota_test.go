package admission

import (
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/ipamd/ipamd/api"
)

// What a second leaves unused may come at once, no more; a refusal says when to ask
// again; and a peer that uses nothing is forgotten.
func TestQuota(t *testing.T) {
	now := time.Now()
	a := New(Limits{InFlight: 100, Rate: 10}, slog.New(slog.DiscardHandler))
	a.now = func() time.Time { return now }
	one := &Peer{Holder: Holder{1, 1}, Role: api.Runtime}
	burst := func() (n int) {
		for {
			leave, err := a.Enter(one, 1)
			if err != nil {
				var busy *BusyError
				if !errors.As(err, &busy) || busy.Limit != "rate" || busy.After != 100*time.Millisecond {
					t.Fatalf("refused with %#v", err)
				}
				return n
			}
			leave()
			n++
		}
	}
	if n := burst(); n != 10 {
		t.Errorf("%d calls at once, want a second's worth", n)
	}
	now = now.Add(300 * time.Millisecond)
	if n := burst(); n != 3 {
		t.Errorf("%d calls after 300ms, want 3", n)
	}
	now = now.Add(time.Hour)
	if n := burst(); n != 10 {
		t.Errorf("%d calls after an hour, want a second's worth", n)
	}
	forAll := a.account(Unidentified, now)
	for pid := range int32(10_000) {
		now = now.Add(10 * time.Millisecond)
		leave, err := a.Enter(&Peer{Holder: Holder{0, pid}, Role: api.Admin}, 1)
		if err != nil {
			t.Fatal(err)
		}
		leave()
	}
	if len(a.of) > 200 {
		t.Errorf("%d accounts are kept, of which the last second's are 100", len(a.of))
	}
	if a.account(Unidentified, now) != forAll {
		t.Error("readings for all have several accounts, and may wait behind none of their own")
	}
	// A single call is always possible, whatever it counts for.
	if _, err := a.Enter(&Peer{Holder: Holder{2, 0}, Role: api.Admin}, 1000); err != nil {
		t.Error(err)
	}
}
