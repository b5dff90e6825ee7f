package orphans_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/ipamd/ipamd/internal/ctrdtest"
	"github.com/ipamd/ipamd/internal/ownertest"
	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/orphans"
)

// G11: however an owner spreads its word, five sandboxes an hour are ended on it, over
// quiet sweeps and a restart; a slow leak gets room when the hour is over. More at once
// than that are ended when a person confirms the set that was shown, and by no time.
func TestG11ASweepEndsFew(t *testing.T) {
	d := ctrdtest.Start(t, ctrdtest.Debian)
	o := ownertest.Start(t)
	var ahead time.Duration
	b := newScene(t, d, o, func(c *orphans.Config) {
		c.Now = func() ipam.Stamp {
			s := ipam.Now()
			s.Boottime, s.Wall = s.Boottime+ahead, s.Wall.Add(ahead)
			return s
		}
	})
	named := 0
	goneNow := func(n int) {
		t.Helper()
		var names []string
		for range n {
			name := fmt.Sprintf("s%02d", named)
			names = append(names, name)
			b.record(name, name)
			b.lease(name, name)
			named++
		}
		o.Set("gone", names...)
		_, err := b.Sweep(ctx) // the first that misses them
		b.check(err)
	}
	swept := func(removed, held int) (set string) {
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
		return orphans.HeldSet(left)
	}
	for _, n := range []int{1, 1, 3} {
		goneNow(n)
		swept(n, 0)
		swept(0, 0) // a quiet one
	}
	goneNow(1)
	swept(0, 1)
	swept(0, 1)
	logged := func(room, operator int) {
		t.Helper()
		if n, m := b.log.count("it waits for room, or"), b.log.count("it waits until an operator"); n != room || m != operator {
			t.Errorf("it was logged %d times that they wait for room, and %d times for an operator: want %d and %d", n, m, room, operator)
		}
	}
	logged(1, 0)
	var err error
	b.Sweeper, err = orphans.New(b.cfg) // a restart
	b.check(err)
	swept(0, 0) // misses it anew
	swept(0, 1)
	ahead += time.Hour
	swept(1, 0)

	goneNow(12)
	swept(0, 12)
	logged(2, 1)
	ahead += 2 * time.Hour
	shown := swept(0, 12)
	goneNow(3)
	swept(0, 15)
	for _, other := range []string{"", shown} {
		if err := b.Confirm(other); !errors.Is(err, orphans.ErrOtherOrphans) {
			t.Errorf("the set %q is confirmed in place of another: %v", other, err)
		}
	}
	shown = swept(0, 15)
	goneNow(2)
	b.check(b.Confirm(shown)) // the last two were not looked at: they are no orphans yet
	swept(15+2, 0)            // but few enough for the owner's word
}

// TestWithoutAnOwnerThereIsNoneToConfirm: the answer says so, and is not that others are held.
func TestWithoutAnOwnerThereIsNoneToConfirm(t *testing.T) {
	var none *orphans.Sweeper
	if err := none.Confirm("a"); err == nil || errors.Is(err, orphans.ErrOtherOrphans) {
		t.Errorf("it is %v", err)
	}
}
