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
	"github.com/ipamd/ipamd/client"
	"github.com/ipamd/ipamd/internal/nstest"
	"github.com/ipamd/ipamd/internal/realtest"
)

// Somebody behind a port answers every question for any address of a pool, and
// claims them all unasked, too. Nobody is given a claimed address; no more than
// the quarantine's share is set aside; the port and its MAC are named; who was
// there before keeps its lease; a pool beside it on the same bridge gives as if
// nothing were; and when the port goes the pool gives again.
func TestFloodOfAnswers(t *testing.T) {
	for _, tt := range []struct {
		name, flooded, beside string
		gateways              []string
		share                 int // what may be set aside of the flooded pool
	}{
		{"arp", "10.8.64.0/26", "10.8.65.0/26", []string{"10.8.64.1/26", "10.8.65.1/26"}, 15},
		{"ndp", "fd00:8:0:1::/122", "fd00:8:0:2::/122", []string{"fd00:8:0:1::1/122", "fd00:8:0:2::1/122"}, 15},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := prepare(t, quick, func(c *Config) {
				c.Pools = []poolConfig{{Name: "flooded", Prefix: tt.flooded}, {Name: "beside", Prefix: tt.beside}}
				// It answers from user space: all are asked ahead, and may take their time.
				c.Probe.Ahead, c.Probe.Window = 64, duration{time.Second}
			})
			w.ns.Bridge("rt0", tt.gateways...)
			w.start()
			before := w.allocate("before").Leases[0]
			host := w.ns.Port("rt0", fmt.Sprintf("%s/%d", before.Address, before.PrefixLen))
			r, err := w.client.Bind(ctx, before.ID, api.BindRequest{Netns: host.NS.Path(), HostInterface: host.HostName, MAC: host.MAC.String()})
			if err != nil {
				t.Fatal(err)
			}
			before = r.Lease
			port := w.ns.Port("rt0")
			prefix := netip.MustParsePrefix(tt.flooded)
			f := newFlooder(t, w.ns, port, prefix)

			for a := netip.MustParseAddr(before.Address).Next(); prefix.Contains(a.Next()); a = a.Next() {
				realtest.Eventually(t, wait, a.String()+" to be claimed", func() bool { return len(w.program.board.About(a).Seen) > 0 })
			}
			ask := func(pool, sandbox string) (*api.AllocateReply, error) {
				return w.client.Allocate(ctx, api.AllocateRequest{Sandbox: sandbox, Pool: pool})
			}
			for i := range 60 {
				if r, err := ask("flooded", fmt.Sprint("f", i)); !errors.Is(err, client.ErrConflictLimit) && !errors.Is(err, client.ErrPoolExhausted) {
					t.Errorf("an address that somebody claims: %+v, %v", r, err)
				}
				r, err := ask("beside", fmt.Sprint("b", i))
				if err != nil || len(r.Skipped) != 0 {
					t.Fatalf("the pool beside: %+v, %v", r, err)
				}
			}
			pools, err := w.client.Pools(ctx)
			if err != nil {
				t.Fatal(err)
			}
			if p := pools.Pools[0]; p.ByState["quarantined"] != tt.share || p.ByState["bound"] != 1 || p.ByState["reserved"] != 0 {
				t.Errorf("the flooded pool holds %v, want %d quarantined", p.ByState, tt.share)
			}
			if p := pools.Pools[1]; p.ByState["quarantined"] != 0 || p.ByState["reserved"] != 60 {
				t.Errorf("the pool beside holds %v", p.ByState)
			}
			w.stays(before)
			w.namesTheFlooder(port)

			f.stop()
			port.Close()
			realtest.Eventually(t, wait, "the pool to give again", func() bool {
				_, err := ask("flooded", "after")
				return err == nil
			})
			w.stays(before)
		})
	}
}

// namesTheFlooder fails unless evidence, doctor and log name a port and the
// MAC behind it, for what is set aside and for what there is no room to.
func (w *world) namesTheFlooder(port *nstest.Port) {
	w.t.Helper()
	named := func(words string) bool {
		return strings.Contains(words, port.HostName) && strings.Contains(words, port.MAC.String())
	}
	list, err := w.client.Leases(ctx, client.LeaseFilter{State: string(api.Quarantined)})
	if err != nil {
		w.t.Fatal(err)
	}
	for _, l := range list.Leases {
		if !slices.ContainsFunc(l.Evidence, func(s api.Sighting) bool { return s.Port == port.HostName && s.MAC == port.MAC.String() }) {
			w.t.Errorf("%s was set aside for %+v", l.Address, l.Evidence)
		}
	}
	d, err := w.client.Doctor(ctx)
	if err != nil {
		w.t.Fatal(err)
	}
	if !slices.ContainsFunc(d.Findings, func(f api.Finding) bool { return f.Kind == "quarantine_near_cap" }) {
		w.t.Errorf("doctor does not tell of the cap: %+v", d.Findings)
	}
	if !slices.ContainsFunc(d.Findings, func(f api.Finding) bool { return named(f.Detail) }) {
		w.t.Errorf("doctor does not name %s with %s: %+v", port.HostName, port.MAC, d.Findings)
	}
	for _, message := range []string{"address is quarantined", "is not quarantined: the share is used up"} {
		told := slices.DeleteFunc(strings.Split(w.log.String(), "\n"), func(line string) bool { return !strings.Contains(line, message) })
		if len(told) == 0 || !slices.ContainsFunc(told, named) {
			w.t.Errorf("of %d lines %q none names %s with %s", len(told), message, port.HostName, port.MAC)
		}
	}
}
