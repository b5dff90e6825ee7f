package watchdog

import (
	"fmt"
	"testing"
	"time"

	"github.com/ipamd/ipamd/ipam"
)

// What is remembered of answers is as much as there are leases that wait to be
// bound, however many were given.
func TestWordsAreForgotten(t *testing.T) {
	var a awaiting
	now := ipam.Stamp{Boottime: time.Hour, BootID: "one"}
	for i := range 100_000 {
		a.note(fmt.Sprint("ended-", i), answered{now, time.Hour})
		a.end(fmt.Sprint("ended-", i))
		a.note(fmt.Sprint("over-", i), answered{now, time.Second})
		now.Boottime += 100 * time.Millisecond
	}
	if n := len(a.of); n > 2*leastRoom {
		t.Errorf("%d are remembered", n)
	}
	if a.room > 4*leastRoom {
		t.Errorf("there is room for %d", a.room)
	}
}
