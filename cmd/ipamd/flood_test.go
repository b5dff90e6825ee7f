package main

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/client"
	"github.com/ipamd/ipamd/config"
	"github.com/ipamd/ipamd/internal/nstest"
	"github.com/ipamd/ipamd/internal/realtest"
	"github.com/ipamd/ipamd/ipam"
)

// floodShare is what may be quarantined of a pool of 62 hosts: a quarter.
const floodShare = 15

// floods are two pools on one bridge that a guest floods, by protocol.
var floods = []struct {
	name     string
	prefixes [2]string
}{
	{"arp", [2]string{"10.8.64.0/26", "10.8.65.0/26"}},
	{"ndp", [2]string{"fd00:8:0:1::/122", "fd00:8:0:2::/122"}},
}

// A guest behind a port answers every question for any address of a pool, and
// claims them all unasked, too: for itself, for MACs that no port has, or for
// the MAC of who has a lease there. No sandbox is given a claimed address; no more
// than the quarantine's share is quarantined; the flooder's own port and MAC are
// named, and what it said; who was there before keeps its lease, and the flooder
// does not pass for it; a pool beside it on the same bridge, which it does not
// claim, gives as if nothing were; and when the port goes the pool gives again.
func TestFloodOfAnswers(t *testing.T) {
	for _, tt := range floods {
		for _, lie := range []string{"honest", "invented", "the victim's"} {
			t.Run(tt.name+" "+lie, func(t *testing.T) {
				w := newFlooded(t, tt.prefixes)
				before, victim := w.resident("flooded")
				port := w.knownPort()
				says := map[string]claim{"honest": always(port.MAC), "invented": invented, "the victim's": always(victim.MAC)}[lie]
				goOn := w.holdPasses()
				f := newFlooder(t, w.ns, port, says, netip.MustParsePrefix(tt.prefixes[0]))
				w.allClaimed(before)
				goOn()
				for i := range 2 * floodShare {
					w.refused("flooded", fmt.Sprint("f", i))
					r, err := w.ask("beside", fmt.Sprint("b", i))
					if err != nil || len(r.Skipped) != 0 {
						t.Fatalf("the pool beside: %+v, %v", r, err)
					}
				}
				w.holds(0, map[api.State]int{api.Quarantined: floodShare, api.Bound: 1, api.Reserved: 0})
				w.holds(1, map[api.State]int{api.Quarantined: 0, api.Reserved: 2 * floodShare})
				w.stays(before)
				w.namesTheFlooder(port, says)
				realtest.Eventually(t, wait, "its claim on the lease's address to be reported", func() bool {
					return slices.Contains(w.findings(), "conflict "+before.Address)
				})

				f.stop()
				port.Close()
				realtest.Eventually(t, wait, "the pool to give again", func() bool {
					_, err := w.ask("flooded", "after")
					return err == nil
				})
				w.stays(before)
			})
		}
	}
}

// It claims every address of both pools: each keeps to its own share, neither
// gives an address that is claimed, and in both the lease that was there stays.
func TestFloodOfAnswersForBothPools(t *testing.T) {
	for _, tt := range floods {
		t.Run(tt.name, func(t *testing.T) {
			w := newFlooded(t, tt.prefixes)
			var before []api.Lease
			var prefixes []netip.Prefix
			for i, name := range []string{"flooded", "beside"} {
				l, _ := w.resident(name)
				before, prefixes = append(before, l), append(prefixes, netip.MustParsePrefix(tt.prefixes[i]))
			}
			port := w.knownPort()
			goOn := w.holdPasses()
			f := newFlooder(t, w.ns, port, invented, prefixes...)
			w.allClaimed(before...)
			goOn()
			for i := range 2 * floodShare {
				w.refused("flooded", fmt.Sprint("f", i))
				w.refused("beside", fmt.Sprint("b", i))
			}
			for i := range before {
				w.holds(i, map[api.State]int{api.Quarantined: floodShare, api.Bound: 1, api.Reserved: 0})
			}
			for _, l := range before {
				w.stays(l)
			}
			w.namesTheFlooder(port, invented)

			f.stop()
			port.Close()
			for _, name := range []string{"flooded", "beside"} {
				realtest.Eventually(t, wait, name+" to give again", func() bool {
					_, err := w.ask(name, "after")
					return err == nil
				})
			}
			for _, l := range before {
				w.stays(l)
			}
		})
	}
}

// newFlooded starts a daemon with two pools, "flooded" and "beside".
func newFlooded(t *testing.T, prefixes [2]string) *world {
	t.Helper()
	w := prepare(t, quick, func(c *config.Config) {
		c.Pools = []config.Pool{{Name: "flooded", Prefix: prefixes[0]}, {Name: "beside", Prefix: prefixes[1]}}
		// It answers from user space: all are asked ahead, and may take their time.
		c.Probe.Ahead, c.Probe.Window = 64, config.Duration(time.Second)
	})
	var gateways []string
	for _, s := range prefixes {
		p := netip.MustParsePrefix(s)
		gateways = append(gateways, netip.PrefixFrom(ipam.FirstHost(p), p.Bits()).String())
	}
	w.ns.Bridge("rt0", gateways...)
	w.start()
	return w
}

// knownPort is a port that the daemon knows: what comes by it is reported
// with its name.
func (w *world) knownPort() *nstest.Port {
	w.t.Helper()
	p := w.ns.Port("rt0")
	realtest.Eventually(w.t, wait, p.HostName+" to be known", func() bool { return w.program.bridge.PortNames()[p.HostName] })
	return p
}

func (w *world) ask(pool, sandbox string) (*api.AllocateReply, error) {
	return w.client.Allocate(ctx, api.AllocateRequest{Sandbox: sandbox, Pool: pool})
}

// resident binds a lease of a pool to a port that has its address.
func (w *world) resident(pool string) (api.Lease, *nstest.Port) {
	w.t.Helper()
	given, err := w.ask(pool, "before in "+pool)
	if err != nil {
		w.t.Fatal(err)
	}
	l := given.Leases[0]
	p := w.ns.Port("rt0", fmt.Sprintf("%s/%d", l.Address, l.PrefixLen))
	r, err := w.client.Bind(ctx, l.ID, api.BindRequest{Netns: p.NS.Path(), HostInterface: p.HostName, MAC: p.MAC.String()})
	if err != nil {
		w.t.Fatal(err)
	}
	return r.Lease, p
}

// allClaimed waits until all that comes after some leases in their pools is
// seen, by a port: the first answers are looked at before it is known by which one
// they come. The last address of a pool, which in IPv4 is no host's, is not asked for.
func (w *world) allClaimed(after ...api.Lease) {
	w.t.Helper()
	for _, l := range after {
		first := netip.MustParseAddr(l.Address)
		prefix := netip.PrefixFrom(first, l.PrefixLen).Masked()
		for a := first.Next(); prefix.Contains(a.Next()); a = a.Next() {
			realtest.Eventually(w.t, wait, a.String()+" to be claimed", func() bool {
				return slices.ContainsFunc(w.program.board.About(a).Seen, func(s census.Sighting) bool { return s.Port != "" })
			})
		}
	}
}

func (w *world) refused(pool, sandbox string) {
	w.t.Helper()
	if r, err := w.ask(pool, sandbox); !errors.Is(err, client.ErrConflictLimit) && !errors.Is(err, client.ErrPoolExhausted) {
		w.t.Errorf("an address that is claimed: %+v, %v", r, err)
	}
}

// holds fails unless a pool has so many addresses in each of some states.
func (w *world) holds(pool int, want map[api.State]int) {
	w.t.Helper()
	pools, err := w.client.Pools(ctx)
	if err != nil {
		w.t.Fatal(err)
	}
	p := pools.Pools[pool]
	for state, n := range want {
		if p.ByState[string(state)] != n {
			w.t.Errorf("pool %s holds %v, want %d %s", p.Name, p.ByState, n, state)
		}
	}
}

// namesTheFlooder fails unless evidence, doctor and log name its port and the
// MAC that its frames come from, for what is quarantined and for what there is no
// room to, and the evidence says which other MAC it spoke of.
func (w *world) namesTheFlooder(port *nstest.Port, says claim) {
	w.t.Helper()
	named := func(words string) bool {
		return strings.Contains(words, port.HostName) && strings.Contains(words, port.MAC.String())
	}
	list, err := w.client.Leases(ctx, client.LeaseFilter{State: string(api.Quarantined)})
	if err != nil {
		w.t.Fatal(err)
	}
	for _, l := range list.Leases {
		spokenOf := says(netip.MustParseAddr(l.Address)).String()
		if !slices.ContainsFunc(l.Evidence, func(s api.Sighting) bool {
			late := s.Port == "" && strings.Contains(s.Note, "by which port the answer came is not known") // on a machine that stood still
			return s.MAC == port.MAC.String() && (late || s.Port == port.HostName && (spokenOf == s.MAC || strings.Contains(s.Note, spokenOf)))
		}) {
			w.t.Errorf("%s was quarantined for %+v; the flooder, %s at %s, spoke of %s", l.Address, l.Evidence, port.MAC, port.HostName, spokenOf)
		}
	}
	d, err := w.client.Doctor(ctx)
	if err != nil {
		w.t.Fatal(err)
	}
	if !slices.ContainsFunc(d.Findings, func(f api.Finding) bool { return f.Kind == "quarantine_near_cap" }) {
		w.t.Errorf("doctor does not report the cap: %+v", d.Findings)
	}
	if !slices.ContainsFunc(d.Findings, func(f api.Finding) bool { return named(f.Detail) }) {
		w.t.Errorf("doctor does not name %s with %s: %+v", port.HostName, port.MAC, d.Findings)
	}
	for _, message := range []string{"address is quarantined", "is not quarantined: the share is used up"} {
		warnings := slices.DeleteFunc(strings.Split(w.log.String(), "\n"), func(line string) bool { return !strings.Contains(line, message) })
		if len(warnings) == 0 || !slices.ContainsFunc(warnings, named) {
			w.t.Errorf("of %d lines %q none names %s with %s", len(warnings), message, port.HostName, port.MAC)
		}
	}
}
