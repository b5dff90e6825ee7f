package soak_test

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/ipamd/ipamd/internal/realtest"
)

// idleTime is after what time without a call ipamd closes a connection.
const idleTime = 2 * time.Minute

// perConn is what an idle connection may cost, in bytes of resident memory.
const perConn = 64 << 10

// Another peer's call may take slower times as long in the crowd as without
// it, and slack more: the middle one of many, in the better of two turns.
const (
	slower = 5
	slack  = 20 * time.Millisecond
	own    = 8 // files of the daemon's own that come and go, connections to its book for one
)

// TestTenThousand is S2: ten thousand connections cost what there is room for,
// and no other peer its answer, its time, or its place beside a greedy process.
func TestTenThousand(t *testing.T) {
	const many = 10_000
	var files syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err != nil {
		t.Fatal(err)
	}
	if files.Max < 2*many {
		realtest.Lack(t, fmt.Sprintf("needs %d open files, and may have %d", 2*many, files.Max))
	}
	for _, c := range []struct {
		name string
		room int
	}{{"room for a tenth", 1024}, {"room for all", many}} {
		t.Run(c.name, func(t *testing.T) { fill(t, c.room, many) })
	}
}

// fill gathers so many connections where there is room for room of them.
func fill(t *testing.T, room, many int) {
	d := start(t, room)
	without := others(t, d, "without the crowd") // opens what calls open
	before := d.atRest()

	idlers, began := newCrowd(t, d, many), time.Now()
	idlers.answered()
	// Nine tenths: those that were closed for another come again by and by.
	least := before.files + room*9/10
	crowded := func(when string) (s sample) {
		if s = d.sample(); s.files >= least {
			return s
		}
		if time.Since(began) < idleTime {
			t.Errorf("%d files open %s, want %d: the crowd is not there", s.files, when, least)
			return s
		}
		realtest.Eventually(t, patience, "the crowd is there again "+when, func() bool { s = d.sample(); return s.files >= least })
		return s
	}
	first := crowded("at first")
	with := min(others(t, d, "in the crowd"), others(t, d, "in the crowd"))
	held := crowded("after others came")
	keepsPlace(t, d)
	used := d.sample()
	t.Logf("before %v; with %d %v; after others' sandboxes %v; and beside a greedy one %v", before, many, first, held, used)
	if most := before.resident + room*perConn; max(held.resident, used.resident) > most {
		t.Errorf("%d bytes resident, and %d beside a greedy one: want at most %d", held.resident, used.resident, most)
	}
	// One is accepted before another is closed.
	realtest.Eventually(t, patience, fmt.Sprintf("no more files are open than there is room for, of %d", used.files), func() bool {
		return d.sample().files <= before.files+room+own
	})

	idlers.leave()
	d.client.CloseIdleConnections()
	realtest.Eventually(t, patience, "ipamd to have closed the connections of the crowd", func() bool { return d.sample().files <= before.files+own })
	without = max(without, others(t, d, "after the crowd"))
	if most := slower*without + slack; with > most {
		t.Errorf("a call takes %v in the crowd, and %v without it: want at most %v", with, without, most)
	}
}

// others makes fifty sandboxes, each on a connection of its own, and returns
// the middle of what their calls took. None of them is refused.
func others(t *testing.T, d *daemon, when string) time.Duration {
	t.Helper()
	w := &work{client: d.client, began: time.Now()}
	for n := range 50 {
		w.sandbox(t, 1, n)
		d.client.CloseIdleConnections()
	}
	if len(w.refused) != 0 {
		t.Errorf("others were refused %s: %v", when, w.refused)
	}
	p50 := w.within(50, 0, patience)
	t.Logf("%s: p50 %v, p99 %v of others' calls", when, p50, w.within(99, 0, patience))
	return p50
}
