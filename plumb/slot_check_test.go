package plumb

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/ipamd/ipamd/internal/nstest"
)

// What a slot's namespace has beside what was made there is named, and so is what is no more as the
// kernel makes it; what the kernel makes in a new namespace is no difference.
func TestCheckSlotNamesWhatWasAdded(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	runner := t.Name() + strconv.Itoa(os.Getpid())
	s := w.slotOf(t, runner, "one")
	check := func() []Difference {
		t.Helper()
		var diffs []Difference
		var err error
		w.host.Do(func() { diffs, err = CheckSlot(t.Context(), s) })
		if err != nil {
			t.Fatal(err)
		}
		return diffs
	}
	inside := func(ip string) {
		t.Helper()
		w.host.Exec(append([]string{"nsenter", "--net=" + s.Netns, "ip"}, strings.Fields(ip)...)...)
	}
	for _, c := range []struct{ field, by string }{
		{"", ""},
		{"", "link add none type bridge"}, // as sit0 and others of the kernel's
		{"", "address add fe80::77/64 dev eth0"},
		{"links", "link add more up type bridge"},
		{"links", "link add more up type veth peer name other"},
		{"addresses", "link add more type bridge; address add 10.8.64.77/32 dev more"},
		{"addresses", "address add 10.8.64.77/32 dev lo"},
		{"addresses", "address add 10.8.64.77/24 dev eth0"},
		{"addresses", "address add fd08::77/128 dev lo"},
		{"addresses", "address add 192.0.2.1 peer 10.8.64.77 dev eth0"},
		{"addresses", "address add 10.8.64.7 peer 10.9.9.0/24 dev eth0"},
		{"addresses", "address change 10.8.64.7/24 dev eth0 valid_lft 600 preferred_lft 600"},
		{"addresses", "address change fd08::7/64 dev eth0 preferred_lft 0"},
		{"addresses", "address delete 127.0.0.1/8 dev lo"},
		{"lo", "link set lo down"},
		{"guest", "link set eth0 arp off"},
		{"guest", "link set eth0 multicast off"},
		{"guest", "link add none type bridge; link set eth0 master none"},
		{"routes", "route add blackhole 10.10.0.0/16"},
		{"routes", "-6 route add unreachable fd99::/64"},
		{"routes", "route add 10.10.0.0/16 via 10.8.64.1"},
		{"routes", "route add default via 10.8.64.9 metric 7"},
		{"routes", "route add default via 10.8.64.1 metric 7"},
		{"routes", "route replace blackhole default"},
		{"routes", "route replace 10.9.0.0/16 dev lo scope link"},
		{"routes", "route replace local 10.9.0.0/16 dev eth0 table main"},
		{"routes", "route change default via 10.8.64.1 mtu lock 100"},
		{"routes", "route delete 10.8.64.0/24"},
		{"routes", "-6 route delete fd08::/64"},
		{"routes", "route add local 10.8.64.77 dev lo table local"},
		{"routes", "route delete local 10.8.64.7 dev eth0 table local"},
		{"routes", "route add blackhole 10.10.0.0/16 table 7"},
		{"rules", "rule add pref 5 blackhole"},
		{"rules", "rule add from 10.8.64.7 blackhole"},
		{"rules", "rule add pref 32766 from 10.8.64.0/24 lookup main"},
		{"rules", "rule add pref 32766 from 10.8.64.0/24 lookup main; rule delete pref 32766 from all"},
		{"rules", "-6 rule add lookup 7"},
		{"rules", "rule delete pref 32766"},
		{"netns", "off"},
	} {
		if err := w.slot(t, runner, s); err != nil {
			t.Fatal(err)
		}
		if diffs := check(); len(diffs) > 0 {
			t.Errorf("made: %v", diffs)
		}
		for _, ip := range strings.Split(c.by, "; ") {
			switch ip {
			case "":
			case "off":
				if err := RemoveNetns(s.Netns); err != nil {
					t.Fatal(err)
				}
			default:
				inside(ip)
			}
		}
		diffs := check()
		if c.field == "" && len(diffs) > 0 {
			t.Errorf("ip %s: %v", c.by, diffs)
		}
		if c.field != "" && !slices.ContainsFunc(diffs, func(d Difference) bool { return d.Field == c.field }) {
			t.Errorf("ip %s: %v, and nothing of %s", c.by, diffs, c.field)
		}
		if err := w.noSlot(t, runner, s); err != nil {
			t.Fatal(err)
		}
	}
}

// A slot of IPv4 is as it was made also where IPv6 is switched off.
func TestCheckSlotWithoutIPv6(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	four := nstest.New(t)
	four.Exec("sysctl", "-qw", "net.ipv6.conf.all.disable_ipv6=1", "net.ipv6.conf.default.disable_ipv6=1", "net.ipv6.conf.lo.disable_ipv6=1")
	s := specOf(four.Path())
	s.Addresses, s.Routes = s.Addresses[:1], slices.DeleteFunc(s.Routes, func(r Route) bool { return r.To.Addr().Is6() })
	if _, err := w.make(t, s); err != nil {
		t.Fatal(err)
	}
	w.host.Do(func() {
		if diffs, err := CheckSlot(t.Context(), s); err != nil || len(diffs) > 0 {
			t.Errorf("made: %v, %v", diffs, err)
		}
	})
}
