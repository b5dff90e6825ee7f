package bridge

import (
	"encoding/binary"
	"net/netip"
	"testing"
	"time"

	"github.com/ipamd/ipamd/internal/nstest"
)

// An address that was on the wire for a while is remembered when it has left;
// one that never was is not; and what was before anybody watched is unknown.
func TestSeenWithin(t *testing.T) {
	t.Parallel()
	ns := nstest.New(t)
	ns.Bridge("rt0", "10.8.0.1/24")
	before := time.Now()
	v := open(t, ns)
	two, three := netip.MustParseAddr("10.8.0.2"), netip.MustParseAddr("10.8.0.3")
	watched := time.Now()
	if v.SeenWithin(two, time.Since(watched)) {
		t.Error("seen before it was there")
	}
	if !v.SeenWithin(three, time.Since(before)) {
		t.Error("before the bridge was read it is known what was not there")
	}
	p := ns.Port("rt0", "10.8.0.2/24")
	v.await("10.8.0.2", "netns")
	p.Close()
	v.await("10.8.0.2", "")
	if !v.SeenWithin(two, time.Since(watched)) || v.SeenWithin(three, time.Since(watched)) {
		t.Errorf("since then seen: %v, %v; want only the first", v.SeenWithin(two, time.Since(watched)), v.SeenWithin(three, time.Since(watched)))
	}
	if later := time.Now(); v.SeenWithin(two, time.Since(later)) {
		t.Error("seen after it left")
	}
	v.silence(errUnread)
	if !v.SeenWithin(three, time.Since(watched)) {
		t.Error("through a silence it is known what was not there")
	}
}

// The memory is bounded; what it had to drop is unknown, not unseen.
func TestLatelyIsBounded(t *testing.T) {
	began := time.Now()
	l := &lately{since: began}
	addr := func(n uint32) netip.Addr { return netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil, n))) }
	stranger := netip.MustParseAddr("fd00::1")
	for n := range uint32(latelyMost / 2) {
		l.note(addr(n))
	}
	if l.within(stranger, time.Since(began)) || !l.within(addr(0), time.Since(began)) {
		t.Error("before it is full it does not know who was seen")
	}
	for n := range uint32(3 * latelyMost) {
		l.note(addr(n))
		if n := len(l.now) + len(l.before); n > latelyMost {
			t.Fatalf("it remembers %d", n)
		}
	}
	if !l.within(stranger, time.Since(began)) {
		t.Error("of what was dropped it is known who was not seen")
	}
}
