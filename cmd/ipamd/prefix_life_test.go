package main

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/client"
	"github.com/ipamd/ipamd/internal/nstest"
	"github.com/ipamd/ipamd/internal/realtest"
)

// delegate gives a sandbox a prefix of 16 addresses.
func (w *world) delegate(sandbox, want string) api.Lease {
	w.t.Helper()
	r, err := w.client.Allocate(ctx, api.AllocateRequest{Sandbox: sandbox, PrefixLength: 28})
	if err != nil || r.Leases[0].Address != want || r.Leases[0].PrefixLength != 28 {
		w.t.Fatalf("%s got %+v, %v, want %s/28", sandbox, r, err, want)
	}
	return r.Leases[0]
}

func (w *world) bindPort(l api.Lease, p *nstest.Port) {
	w.t.Helper()
	if _, err := w.client.Bind(ctx, l.ID, api.BindRequest{HostInterface: p.HostName, Netns: p.NS.Path(), MAC: p.MAC.String()}); err != nil {
		w.t.Fatal(err)
	}
}

// D6: delegated prefixes are the same, whole, behind kill -9, and behind a rebuild: the one
// that is used is its sandbox's, under the same lease, the one that cooled cools, and the one
// that was only reserved is quarantined. Where the rows are lost, and with them whose port it
// is, the one that is used is quarantined as a whole until an operator gives it back. No
// other sandbox is given an address of any of them.
func TestD6PrefixesOverAKillAndARebuild(t *testing.T) {
	t.Parallel()
	realtest.Need(t, "nsenter")
	for _, lost := range []string{"changes", "leases"} {
		t.Run("the page of "+lost, func(t *testing.T) { t.Parallel(); prefixesOverARebuild(t, lost) })
	}
}

func prefixesOverARebuild(t *testing.T, lost string) {
	w := prepare(t, slow)
	w.ns.Bridge("rt0", "10.8.64.1/24")
	file := filepath.Join(t.TempDir(), "ipamd.toml")
	var text bytes.Buffer
	must(t, w.cfg.Write(&text))
	must(t, os.WriteFile(file, text.Bytes(), 0o600))
	daemon := w.apart(file)
	kill := func() {
		_ = daemon.Process.Kill()
		_ = daemon.Wait() // it was killed
	}
	defer kill()

	lab, rests := w.delegate("lab", "10.8.64.16"), w.delegate("rests", "10.8.64.32")
	port := w.ns.Port("rt0", "10.8.64.17/24")
	w.bindPort(lab, port)
	_, err := w.client.Bind(ctx, rests.ID, api.BindRequest{HostInterface: "veth-rests"})
	must(t, err)
	if r, err := w.client.Release(ctx, rests.ID, api.ReleaseRequest{Wait: api.Duration(wait.String())}); err != nil || r.Lease.State != api.Cooling {
		t.Fatalf("%+v, %v", r, err)
	}
	waits := w.delegate("waits", "10.8.64.48")
	are := func(when string, states map[string]api.State) {
		t.Helper()
		for at, state := range states {
			who := w.whois(at)
			if who.State != state {
				t.Errorf("%s: %s is %s, want %s", when, at, who.State, state)
			}
			if state != api.Cooling && (who.Lease == nil || who.Lease.PrefixLength != 28) {
				t.Errorf("%s: %s is of %+v", when, at, who.Lease)
			}
		}
		if again := w.delegate("lab", "10.8.64.16"); again.ID != lab.ID || again.State != api.Bound {
			t.Errorf("%s: lab has %+v", when, again)
		}
		for _, a := range []string{"10.8.64.31", "10.8.64.40", "10.8.64.63"} {
			_, err := w.client.Allocate(ctx, api.AllocateRequest{Sandbox: "other", Address: a})
			if !errors.Is(err, client.ErrAddressTaken) && !errors.Is(err, client.ErrAddressQuarantined) {
				t.Errorf("%s: %s for another: %v", when, a, err)
			}
		}
	}
	kill()
	daemon = w.apart(file)
	are("behind a kill", map[string]api.State{"10.8.64.31": api.Bound, "10.8.64.40": api.Cooling, "10.8.64.63": api.Reserved})
	if again := w.delegate("waits", "10.8.64.48"); again.ID != waits.ID {
		t.Errorf("waits has %+v", again)
	}
	kill()

	w.start() // the log is folded, as a rebuild of half a book is another test's
	w.stopDaemon()
	w.spoil(lost)
	report, err := w.rebuild()
	must(t, err)
	w.start()
	if lost == "leases" {
		if who := w.whois("10.8.64.31"); who.State != api.Quarantined || who.Lease.PrefixLength != 28 {
			t.Errorf("nothing shows whose 10.8.64.17 is: %+v", who)
		}
		_, err := w.client.Adopt(ctx, "10.8.64.16", api.AdoptRequest{HostInterface: port.HostName, MAC: port.MAC.String(), Reason: "its rows were lost"})
		must(t, err)
	}
	are(fmt.Sprintf("behind a rebuild, %v", rowsOf(report)), map[string]api.State{"10.8.64.31": api.Bound, "10.8.64.40": api.Cooling, "10.8.64.63": api.Quarantined})
	var taken []netip.Prefix
	for _, l := range []api.Lease{lab, rests, waits} {
		taken = append(taken, netip.MustParsePrefix(l.Address+"/28"))
	}
	for i := range 40 {
		a := netip.MustParseAddr(w.allocate(fmt.Sprint("new-", i)).Leases[0].Address)
		if slices.ContainsFunc(taken, func(p netip.Prefix) bool { return p.Contains(a) }) {
			t.Errorf("%s was given", a)
		}
	}
}

// D6: a delegated prefix that is released stays releasing while any port of the bridge uses
// an address of it, its own or another's, over a restart; the blocker names the port. It
// cools when the last one is gone.
func TestD6AReleasedPrefixWaitsForItsLastPort(t *testing.T) {
	t.Parallel()
	w := newWorld(t, slow)
	lab := w.delegate("lab", "10.8.64.16")
	own, last := w.ns.Port("rt0", "10.8.64.17/24"), w.ns.Port("rt0", "10.8.64.30/24")
	w.bindPort(lab, own)
	w.watched()
	if r, err := w.client.Release(ctx, lab.ID, api.ReleaseRequest{}); err != nil || r.Lease.State != api.Releasing {
		t.Fatalf("%+v, %v", r, err)
	}
	own.Close()
	waits := func() {
		t.Helper()
		realtest.Eventually(t, wait, "the last port to be what it waits for", func() bool {
			r, err := w.client.Lease(ctx, lab.ID)
			return err == nil && r.Lease.State == api.Releasing && len(r.Blockers) > 0 &&
				!slices.ContainsFunc(r.Blockers, func(b api.Blocker) bool {
					return b.Kind != "sighting" || !bytes.Contains([]byte(b.Detail), []byte(last.HostName))
				})
		})
		if _, err := w.client.Reconcile(ctx, api.ReconcileRequest{Confirm: true}); err != nil {
			t.Error(err)
		}
		if s := w.state("10.8.64.16"); s != api.Releasing {
			t.Fatalf("it is %s, and %s uses 10.8.64.30", s, last.HostName)
		}
	}
	waits()
	w.stopDaemon()
	w.start()
	waits()
	last.Close()
	w.becomes("10.8.64.30", api.Cooling)
}
