package netdb

import (
	"testing"
	"time"
)

// A damaged book is looked over for a twentieth of the time, as long as that
// is looked over each minute.
func TestRestAfterALook(t *testing.T) {
	for look, want := range map[time.Duration]time.Duration{
		0:                     0,
		50 * time.Millisecond: time.Second,
		3 * time.Second:       time.Minute,
		time.Hour:             time.Minute,
	} {
		if rest := restAfter(look); rest != want {
			t.Errorf("after a look of %v it rests %v, want %v", look, rest, want)
		}
	}
}
