package main

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/client"
	"github.com/ipamd/ipamd/config"
	"github.com/ipamd/ipamd/internal/ctrdtest"
	"github.com/ipamd/ipamd/internal/realtest"
)

// both gives the default pool an IPv6 half.
func both(c *config.Config) {
	c.Pools = append(c.Pools, config.Pool{Name: "default", Prefix: "fd00:8:64::/64"})
}

// dual makes a runner whose default pool has both families.
func dual(t *testing.T, change ...func(*config.Config)) *world {
	w := prepare(t, append(change, both)...)
	w.ns.Bridge("rt0", "10.8.64.1/24", "fd00:8:64::1/64")
	w.start()
	return w
}

// twin is the address with a number in each family's pool.
func twin(n string) []string { return []string{"10.8.64." + n, "fd00:8:64::" + n} }

// dualBox is a sandbox with a lease of each family on one interface, in one container
// whose labels have both addresses and, as there is one such label, one lease id.
func (w *world) dualBox(d *ctrdtest.Daemon, name string) (b *box, leases []api.Lease) {
	w.t.Helper()
	r, err := w.client.Allocate(ctx, api.AllocateRequest{Sandbox: name, Family: api.Dual})
	if err != nil {
		w.t.Fatal(err)
	}
	b = &box{name: name, held: r.Leases[0]}
	b.port = w.ns.Port("rt0", r.Leases[0].Address+"/24", r.Leases[1].Address+"/64")
	named := leased(r.Leases[0])
	named["runtime.computer/ip6"] = r.Leases[1].Address
	d.Run(w.t, ctrdtest.Spec{ID: name, Labels: named, Netns: b.port.NS.Path()})
	for _, l := range r.Leases {
		realtest.Eventually(w.t, wait, "the container to be seen", func() bool { return seenBy(w, l.Address, "runtime") && seenBy(w, l.Address, "netns") })
		if _, err := w.client.Bind(ctx, l.ID, api.BindRequest{Containers: []api.Container{{Namespace: "default", ID: name}},
			Netns: b.port.NS.Path(), HostInterface: b.port.HostName, MAC: b.port.MAC.String()}); err != nil {
			w.t.Fatal(err)
		}
	}
	return b, r.Leases
}

// TestIPv6LivesAsIPv4Does walks a dual-stack sandbox through what a runner meets, and
// asks of each step the same of both addresses: strangers, the verbs of a person, a
// conflict, a restart, a lost book, a rebuild, the end.
func TestIPv6LivesAsIPv4Does(t *testing.T) {
	t.Parallel()
	ctrdtest.One(t, func(t *testing.T, d *ctrdtest.Daemon) {
		w := dual(t, withContainerd(d), slow)
		ipamctl := w.operate()
		w.holdPasses()
		stranger := w.ns.Port("rt0", "10.8.64.2/24", "fd00:8:64::2/64")
		for _, a := range twin("2") {
			realtest.Eventually(t, wait, a+" to be seen", func() bool { return seenBy(w, a, "netns") })
			if got := w.findings(); !slices.Contains(got, "foreign "+a) {
				t.Errorf("doctor says %v", got)
			}
		}
		box, leases := w.dualBox(d, "a")
		for i, l := range leases {
			if l.Address != twin("3")[i] || l.PrefixLen != []int{24, 64}[i] {
				t.Errorf("given: %+v", l)
			}
			who := w.whois(twin("2")[i])
			if who.State != api.Quarantined || who.Lease == nil || !slices.ContainsFunc(who.Lease.Evidence, func(s api.Sighting) bool {
				return s.Witness == "netns" && s.MAC == stranger.MAC.String() && s.Port == stranger.HostName
			}) {
				t.Errorf("the stranger's: %+v", who)
			}
		}
		held := func(when string) {
			t.Helper()
			for _, l := range leases {
				who := w.whois(l.Address)
				if who.State != api.Bound || who.Owner != "a" || !seenBy(w, l.Address, "runtime") || !seenBy(w, l.Address, "netns") {
					t.Errorf("%s: %s is %+v", when, l.Address, who)
				}
				for _, f := range w.findings() {
					if strings.HasSuffix(f, " "+l.Address) {
						t.Errorf("%s: doctor says %s", when, f)
					}
				}
			}
		}
		held("bound")

		for i, l := range leases {
			within := []string{"10.8.64.0/28", "fd00:8:64::/124"}[i]
			nine := twin("9")[i]
			for line, want := range map[string]string{
				"whois " + l.Address: "a", "history " + l.Address: "a", "show " + l.ID: l.Address, "map --within " + within: "b", "leases": l.Address,
				"quarantine add " + nine + " --reason printer": nine, "pools": []string{"10.8.64.0/24", "fd00:8:64::/64"}[i], "status": []string{"10.8.64.0/24", "fd00:8:64::/64"}[i],
			} {
				if code, output := ipamctl(line); code != 0 || !strings.Contains(output, want) {
					t.Errorf("%s: exit %d, without %q: %s", line, code, want, output)
				}
			}
			if code, output := ipamctl("quarantine ls -q"); code != 0 || !strings.Contains(output, nine+"\n") {
				t.Errorf("quarantine ls: exit %d: %s", code, output)
			}
			if _, err := w.client.Allocate(ctx, api.AllocateRequest{Sandbox: "wish", Address: nine}); !errors.Is(err, client.ErrAddressQuarantined) {
				t.Errorf("a wish for %s: %v", nine, err)
			}
			if code, output := ipamctl("quarantine adopt " + nine + " --sandbox printer --mac 02:00:00:00:99:0" + string(rune('1'+i)) + " --reason known"); code != 0 {
				t.Errorf("adopt %s: exit %d: %s", nine, code, output)
			}
			if got := w.whois(nine); got.State != api.Bound || got.Owner != "printer" {
				t.Errorf("adopted: %+v", got)
			}
			ten := twin("10")[i]
			if code, output := ipamctl("quarantine add " + ten + " --reason x"); code != 0 {
				t.Errorf("exit %d: %s", code, output)
			}
			if code, output := ipamctl("quarantine clear " + ten); code != 0 || w.state(ten) != api.Cooling {
				t.Errorf("clear %s: exit %d: %s, it is %s", ten, code, output, w.state(ten))
			}
		}

		rival := w.ns.Port("rt0", "10.8.64.3/24", "fd00:8:64::3/64")
		for _, l := range leases {
			realtest.Eventually(t, wait, "a conflict on "+l.Address, func() bool { return slices.Contains(w.findings(), "conflict "+l.Address) })
		}
		rival.Close()
		for _, l := range leases {
			realtest.Eventually(t, wait, "no conflict on "+l.Address, func() bool { return !slices.Contains(w.findings(), "conflict "+l.Address) })
		}

		w.stopDaemon()
		w.start()
		held("after a restart")
		w.stopDaemon()
		w.loseBook()
		w.start()
		held("after the book was lost")
		if got := w.whois(leases[0].Address).Lease.ID; got != leases[0].ID {
			t.Errorf("after the book was lost its labelled lease is %s, and was %s", got, leases[0].ID)
		}
		again, err := w.client.Allocate(ctx, api.AllocateRequest{Sandbox: "a", Family: api.Dual})
		if err != nil || !again.Existing || again.Leases[0].Address != leases[0].Address || again.Leases[1].Address != leases[1].Address {
			t.Errorf("asked again: %+v, %v", again, err)
		} else {
			leases = again.Leases
		}
		w.stopDaemon()
		w.spoil("leases")
		if _, err := w.rebuild(); err != nil {
			t.Fatal(err)
		}
		w.start()
		held("after a rebuild")

		for _, l := range leases {
			l = *w.whois(l.Address).Lease
			if r, err := w.client.Release(ctx, l.ID, api.ReleaseRequest{}); err != nil || r.Lease.State != api.Releasing || len(r.Blockers) == 0 {
				t.Errorf("release %s: %+v, %v", l.Address, r, err)
			}
		}
		d.Delete(t, "default", "a")
		box.port.Close()
		for _, l := range leases {
			w.becomes(l.Address, api.Cooling)
		}
	})
}
