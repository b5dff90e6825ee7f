package watchdog_test

import (
	"fmt"
	"testing"

	"github.com/ipamd/ipamd/internal/ctrdtest"
	"github.com/ipamd/ipamd/internal/ownertest"
)

// G11: an owner that says of all sandboxes that they are gone ends a few of them. The
// others live on, in this sweep and in later ones, also those that come after, until a
// person confirms what was shown; then few are ended again without one.
func TestG11ASweepEndsFew(t *testing.T) {
	d := ctrdtest.Start(t, ctrdtest.Debian)
	o := ownertest.Start(t)
	b := newBroom(t, d, o)
	orphans := func(from, to int) {
		t.Helper()
		var names []string
		for i := from; i < to; i++ {
			names = append(names, fmt.Sprintf("s%02d", i))
			b.record(names[len(names)-1], names[len(names)-1])
		}
		o.Set("gone", names...)
		_, err := b.Sweep(ctx) // the first that misses them
		b.check(err)
	}
	swept := func(removed, held int) {
		t.Helper()
		was := [2]int{}
		now, err := b.Sweep(ctx)
		b.check(err)
		for _, one := range now.Orphans {
			switch {
			case one.Removed && !one.Held && one.Err == nil:
				was[0]++
			case one.Held && one.Err != nil:
				was[1]++
			default:
				t.Errorf("neither: %+v", one)
			}
		}
		left, err := b.Orphans()
		if was != [2]int{removed, held} || len(left) != held || err != nil {
			t.Errorf("a sweep ended %d and held %d, want %d and %d; shown are %d, %v", was[0], was[1], removed, held, len(left), err)
		}
	}
	orphans(0, 12)
	swept(5, 7)
	swept(0, 7)
	if n := b.log.count("held until an operator confirms"); n != 1 {
		t.Errorf("it was logged %d times", n)
	}
	orphans(12, 15)
	b.Confirm() // nobody has looked at the last three
	swept(7, 3)
	b.Confirm()
	swept(3, 0)
	swept(0, 0)
	for i := range 8 { // one at a time, as sandboxes end
		orphans(30+i, 31+i)
		swept(1, 0)
	}
}
