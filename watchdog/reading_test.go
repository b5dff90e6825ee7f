package watchdog

import (
	"testing"
	"time"
)

// A reading that lost its processor once puts the next one off by nothing, and
// readings that are dear by themselves may take a twentieth of the time.
func TestReadingsHaveTheirShare(t *testing.T) {
	const cheap, stalled, dear = 50 * time.Microsecond, 90 * time.Millisecond, 30 * time.Millisecond
	start := time.Now()
	at := start
	var r reading
	for i := range 100 {
		took := cheap
		if i%10 == 5 {
			took = stalled
		}
		if r.spend(at, took); r.next.After(at.Add(took)) {
			t.Fatalf("reading %d took %v, and the next waits for %v", i, took, r.next.Sub(at.Add(took)))
		}
		at = at.Add(took + time.Millisecond)
	}
	start, r = at, reading{}
	for range 100 {
		r.spend(at, dear)
		if at = at.Add(dear); at.Before(r.next) {
			at = r.next
		}
	}
	if share := float64(at.Sub(start)) / float64(100*dear); share < dutyShare-2 || share > dutyShare {
		t.Errorf("100 readings of %v took one in %.1f of the time", dear, share)
	}
}
