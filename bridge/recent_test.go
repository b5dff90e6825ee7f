package bridge

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/ipamd/ipamd/internal/nstest"
	"github.com/ipamd/ipamd/internal/realtest"
)

// seenSince is SeenWithin that names its moment: a duration that ends now begins
// later the slower the machine is.
func (v *view) seenSince(addr string, from time.Time) bool {
	return v.recent.after(single(netip.MustParseAddr(addr)), from)
}

// An address that was on the wire for a while is remembered when it has left;
// one that never was is not; and what was before it was watched is unknown.
func TestSeenWithin(t *testing.T) {
	t.Parallel()
	ns := nstest.New(t)
	ns.Bridge("rt0", "10.8.0.1/24")
	before := time.Now()
	v := open(t, ns)
	watched := time.Now()
	if v.seenSince("10.8.0.2", watched) {
		t.Error("seen before it was there")
	}
	if !v.seenSince("10.8.0.3", before) || !v.SeenWithin(netip.MustParsePrefix("10.8.0.3/32"), time.Hour) {
		t.Error("before the bridge was read it is known what was not there")
	}
	p := ns.Port("rt0", "10.8.0.2/24")
	v.await("10.8.0.2", "netns")
	p.Close()
	v.await("10.8.0.2", "")
	if !v.seenSince("10.8.0.2", watched) || v.seenSince("10.8.0.3", watched) {
		t.Errorf("since then seen: %v, %v; want only the first", v.seenSince("10.8.0.2", watched), v.seenSince("10.8.0.3", watched))
	}
	for prefix, want := range map[string]bool{"10.8.0.2/31": true, "10.8.0.0/30": true, "10.8.0.4/30": false} {
		if seen := v.recent.after(netip.MustParsePrefix(prefix), watched); seen != want {
			t.Errorf("an address of %s was seen: %v, want %v", prefix, seen, want)
		}
	}
	if v.seenSince("10.8.0.2", time.Now()) || v.SeenWithin(netip.MustParsePrefix("10.8.0.2/32"), 0) {
		t.Error("seen after it left")
	}
	v.silence(errUnread)
	if !v.seenSince("10.8.0.3", watched) {
		t.Error("through a silence it is known what was not there")
	}
}

// What came and went between two looks, with a while between them, was on
// the wire all the same.
func TestSeenWithinWithoutALook(t *testing.T) {
	t.Parallel()
	ns := nstest.New(t)
	ns.Bridge("rt0", "10.8.0.1/24", "fd00:8::1/64")
	p := ns.Port("rt0")
	v := open(t, ns)
	v.settle()
	watched := time.Now()
	for _, cidr := range []string{"10.8.0.2/24", "fd00:8::2/64", "169.254.0.2/16"} {
		p.AddAddr(cidr)
		p.DelAddr(cidr)
	}
	ns.Port("rt0", "10.8.0.3/24").Close()
	ns.AddAddr("rt0", "10.8.0.4/24")
	ns.DelAddr("rt0", "10.8.0.4/24")
	for addr, state := range map[string]int{"10.8.0.5": netlink.NUD_REACHABLE, "10.8.0.6": netlink.NUD_STALE} {
		setNeighbour(t, ns, addr, "02:aa:aa:aa:aa:01", state)
		ns.Exec("ip", "neigh", "del", addr, "dev", "rt0")
	}
	v.settle()
	for addr, want := range map[string]bool{
		"10.8.0.2": true, "10.8.0.3": true, "10.8.0.4": true, "10.8.0.5": true, // IPv6 comes from a work queue
		"10.8.0.6": false, "10.8.0.7": false, "169.254.0.2": false,
	} {
		if seen := v.seenSince(addr, watched); seen != want || v.seen(addr) {
			t.Errorf("%s was seen: %v, want %v; it is: %v", addr, seen, want, v.seen(addr))
		}
	}
	realtest.Eventually(t, wait, "fd00:8::2 was seen", func() bool {
		v.settle()
		return v.seenSince("fd00:8::2", watched)
	})
}

// The memory is bounded; what it had to drop is unknown, not unseen.
func TestLatelyIsBounded(t *testing.T) {
	began := time.Now()
	l := &recentlySeen{since: began}
	addr := func(n uint32) netip.Addr { return netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil, n))) }
	stranger := netip.MustParsePrefix("fd00::1/128")
	for n := range uint32(recentlyMost / 2) {
		l.note(addr(n))
	}
	if l.after(stranger, began) || !l.after(single(addr(0)), began) {
		t.Error("before it is full it does not know who was seen")
	}
	for n := range uint32(3 * recentlyMost) {
		l.note(addr(n))
		if n := len(l.now) + len(l.before); n > recentlyMost {
			t.Fatalf("it remembers %d", n)
		}
	}
	if !l.after(stranger, began) {
		t.Error("of what was dropped it is known who was not seen")
	}
}

// News of neighbours that a flood made the kernel drop, or that wait behind it
// unread, may be of any address: until they are read no address is known as unseen.
// An address that was in use would be given to the next without its cooldown.
func TestF2SeenWithinBesideAFlood(t *testing.T) {
	t.Parallel()
	const candidate, never = "10.8.0.5", "10.8.0.7"
	for name, buffer := range map[string]int{"news were lost": 1, "news wait": 8 << 20} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ns := nstest.New(t)
			ns.Bridge("rt0", "10.8.0.1/24")
			v := open(t, ns)
			v.settle()
			if err := unix.SetsockoptInt(v.news.Neighbours, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, buffer); err != nil {
				t.Fatal(err)
			}
			watched := time.Now()
			seen := func(addr string) bool { return v.SeenWithin(single(netip.MustParseAddr(addr)), time.Since(watched)) }
			for n := range 2 * neighboursAtOnce {
				setNeighbour(t, ns, "10.8.0.9", fmt.Sprintf("02:aa:aa:aa:aa:%02x", n), netlink.NUD_STALE)
			}
			setNeighbour(t, ns, candidate, "02:aa:aa:aa:bb:01", netlink.NUD_REACHABLE)
			ns.Exec("ip", "neigh", "del", candidate, "dev", "rt0")
			v.settle()
			if !seen(candidate) || !seen(never) {
				t.Errorf("seen: %v, and one that never was: %v; neither is known", seen(candidate), seen(never))
			}
			for v.pending().behind {
				v.settle()
			}
			lost := buffer == 1
			if !seen(candidate) || seen(never) != lost {
				t.Errorf("when all is read, seen: %v, and one that never was: %v, want %v", seen(candidate), seen(never), lost)
			}
			if watched = time.Now(); seen(candidate) {
				t.Error("seen after it left")
			}
			v.noneSilent()
		})
	}
}
