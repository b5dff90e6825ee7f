package main

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/ipamd/ipamd/internal/realtest"
	"github.com/ipamd/ipamd/ipam"
)

// slotsThatAreMade moves the metrics of warm slots, and compares them with the slots that there are.
func slotsThatAreMade(t *testing.T, moved map[string]bool) {
	w := newWorld(t, slow)
	sample := func(name, want string) {
		t.Helper()
		realtest.Eventually(t, wait, fmt.Sprintf("%s to be %s", name, want), func() bool { return w.metric(name) == want })
	}
	sample("warm_helper", "0")
	w.keepSlots(1400, &ipam.Warm{Size: 3})
	sample(`warm_slots{family="v4",pool="default",state="ready"}`, "0")
	sample(`warm_slots_wanted{family="v4",pool="default"}`, "3")
	w.warmHelper()
	sample("warm_helper", "1")
	w.settled(3)
	sample(`warm_slots{family="v4",pool="default",state="ready"}`, "3")
	sample(`warm_slots{family="v4",pool="default",state="making"}`, "0")
	sample(`warm_slots{family="v4",pool="default",state="ending"}`, "0")
	sample("warm_make_seconds_count", "3")
	given := w.warmFor("a")
	sample(`warm_claims_total{pool="default"}`, "1")
	w.settled(3)
	sample("warm_make_seconds_count", "4")
	w.releaseOf(given)
	w.keepSlots(1400, &ipam.Warm{Size: 1}, ipam.Route{Destination: netip.MustParsePrefix("10.9.0.0/16"), Via: netip.MustParseAddr("192.0.2.1")}) // not on the link
	sample(`warm_failed_total{pool="default"}`, "1")
	sample("warm_make_seconds_count", "4")
	for _, name := range []string{"warm_slots", "warm_slots_wanted", "warm_helper", "warm_make_seconds", "warm_failed_total", "warm_claims_total"} {
		moved["ipamd_"+name] = true
	}
}
