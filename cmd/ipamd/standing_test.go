package main

import (
	"context"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/client"
	"github.com/ipamd/ipamd/config"
	"github.com/ipamd/ipamd/internal/nstest"
	"github.com/ipamd/ipamd/internal/realtest"
)

// boundPort gives an address to a sandbox and binds it to a port that has it.
func (w *world) boundPort(sandbox, addr string) (*nstest.Port, api.Lease) {
	w.t.Helper()
	w.give(sandbox, addr)
	port := w.ns.Port("rt0", addr+"/24")
	l := w.whois(addr).Lease
	bound, err := w.client.Bind(ctx, l.ID, api.BindRequest{HostInterface: port.HostName, MAC: port.MAC.String()})
	if err != nil {
		w.t.Fatal(err)
	}
	return port, bound.Lease
}

func (w *world) status() *api.Status {
	w.t.Helper()
	s, err := w.client.Status(ctx)
	if err != nil {
		w.t.Fatal(err)
	}
	return s
}

// noted are the reasons of an address's changes that note a conflict, the
// oldest first.
func (w *world) noted(addr string) []string {
	w.t.Helper()
	past, err := w.client.History(ctx, client.HistoryFilter{Address: addr})
	if err != nil {
		w.t.Fatal(err)
	}
	var out []string
	for _, c := range past.Changes {
		if strings.HasPrefix(c.Reason, "conflict_") {
			out = append(out, c.Reason)
		}
	}
	slices.Reverse(out)
	return out
}

// A stranger on a bound address is in the history, the status, the metrics and
// the log without a pass by the clock, a restart in between forgets nothing,
// and its end is in the history too. whois and show mark who is who. The lease
// stays its owner's.
func TestF27F28StrangerOnAHeldAddressIsNoted(t *testing.T) {
	t.Parallel()
	// Whole passes are an hour apart: only the news can show it.
	w := newWorld(t, func(c *config.Config) {
		c.Reconcile.Every, c.Bridge.Refresh = config.Duration(time.Hour), config.Duration(time.Hour)
	})
	own, before := w.boundPort("real", "10.8.64.2")
	if s := w.status(); len(s.Conflicts) != 0 || s.LastConflict != nil || w.metric("conflicts") != "0" {
		t.Fatalf("before: %+v, last %+v, %s standing", s.Conflicts, s.LastConflict, w.metric("conflicts"))
	}
	stranger := w.ns.Port("rt0", "10.8.64.2/24")
	realtest.Eventually(t, wait, "the conflict to be noted", func() bool { return slices.Equal(w.noted("10.8.64.2"), []string{"conflict_seen"}) })

	s := w.status()
	if len(s.Conflicts) != 1 || s.Conflicts[0].Address != "10.8.64.2" || s.Conflicts[0].LeaseID != before.ID {
		t.Errorf("status has the conflicts %+v", s.Conflicts)
	}
	if c := s.LastConflict; c == nil || c.Address != "10.8.64.2" || c.From != api.Bound || c.To != api.Bound || !s.LastConflictStands ||
		c.Evidence[0].Port != stranger.HostName || c.Evidence[0].MAC != stranger.MAC.String() {
		t.Errorf("the last conflict is %+v, stands %v", c, s.LastConflictStands)
	}
	if !slices.ContainsFunc(s.LastConflict.Evidence, func(e api.Sighting) bool { return e.MAC == own.MAC.String() }) {
		t.Errorf("the evidence has not the owner's MAC: %+v", s.LastConflict.Evidence)
	}
	realtest.Eventually(t, wait, "it to be counted, and logged with the stranger", func() bool {
		output := w.log.String()
		return w.metric(`conflicts_total{witness="netns"}`) == "1" && w.metric("conflicts") == "1" &&
			strings.Contains(output, "held address is in conflict") && strings.Contains(output, stranger.MAC.String())
	})
	if got := w.findings(); !slices.Contains(got, "conflict 10.8.64.2") {
		t.Errorf("doctor says %v", got)
	}

	who, err := w.client.Lease(ctx, before.ID)
	if err != nil {
		t.Fatal(err)
	}
	mark := map[string]api.Belongs{own.MAC.String(): api.Owner, stranger.MAC.String(): api.Stranger}
	for what, seen := range map[string][]api.Sighting{"whois": seenNow(w, "10.8.64.2", "netns"), "show": who.Lease.Conflict} {
		marked := make(map[string]api.Belongs)
		for _, s := range seen {
			marked[s.MAC] = s.Belongs
		}
		if !maps.Equal(marked, mark) {
			t.Errorf("%s marks %v, want %v", what, marked, mark)
		}
	}

	// A restart knows that it stands, and does not note it twice.
	w.stopDaemon()
	w.start()
	if s := w.status(); !s.LastConflictStands || !slices.Equal(w.noted("10.8.64.2"), []string{"conflict_seen"}) {
		t.Errorf("after a restart it stands %v, noted %v", s.LastConflictStands, w.noted("10.8.64.2"))
	}

	stranger.Close()
	realtest.Eventually(t, wait, "its end to be noted", func() bool {
		return slices.Equal(w.noted("10.8.64.2"), []string{"conflict_seen", "conflict_over"})
	})
	if s := w.status(); len(s.Conflicts) != 0 || s.LastConflict == nil || s.LastConflictStands {
		t.Errorf("afterwards: %+v, last %+v, stands %v", s.Conflicts, s.LastConflict, s.LastConflictStands)
	}
	realtest.Eventually(t, wait, "the gauge to fall", func() bool { return w.metric("conflicts") == "0" })
	if l := w.whois("10.8.64.2").Lease; l.ID != before.ID || l.State != api.Bound || !l.Since.Equal(before.Since) {
		t.Errorf("the lease became %+v", l)
	}
	if resp := w.get("/readyz"); resp != http.StatusOK {
		t.Errorf("readyz answers %d", resp)
	}
}

// seenNow is what one witness sees of an address.
func seenNow(w *world, addr, witness string) []api.Sighting {
	for _, a := range w.whois(addr).Witnesses {
		if a.Witness == witness {
			return a.Seen
		}
	}
	return nil
}

// get is the status of an answer.
func (w *world) get(path string) int {
	w.t.Helper()
	c := http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", w.cfg.Socket.Path)
	}}}
	defer c.CloseIdleConnections()
	resp, err := c.Get("http://ipamd" + path)
	if err != nil {
		w.t.Fatal(err)
	}
	resp.Body.Close()
	return resp.StatusCode
}

// What doctor finds is what the status counts, an exhausted pool and a lease that
// is stuck among it.
func TestF31StatusCountsWhatDoctorFinds(t *testing.T) {
	t.Parallel()
	w := newWorld(t, pool("10.8.64.0/30"), func(c *config.Config) { c.Reconcile.Every = config.Duration(time.Hour) })
	if got := w.findings(); len(got) != 0 || len(w.status().Findings) != 0 {
		t.Fatalf("at first: %v, status %v", got, w.status().Findings)
	}
	if _, err := w.client.Allocate(ctx, api.AllocateRequest{Sandbox: "late", BindWithin: "1ms"}); err != nil {
		t.Fatal(err)
	}
	realtest.Eventually(t, wait, "its deadline", func() bool { return w.status().StuckTotal == 1 })
	if got, want := w.findings(), []string{"pool_exhausted", "reserved_past_deadline 10.8.64.2"}; !slices.Equal(got, want) {
		t.Errorf("doctor finds %v, want %v", got, want)
	}
	if got, want := w.status().Findings, map[string]int{"pool_exhausted": 1, "reserved_past_deadline": 1}; !maps.Equal(got, want) {
		t.Errorf("the status counts %v, want %v", got, want)
	}
}
