package main

import (
	"context"
	"slices"
	"strings"

	"github.com/ipamd/ipamd/api"
)

// site is gamma's address, where it answers HTTP.
const site = "10.8.64.4"

// asleep has a sandbox paused, and a neighbour wake it by nothing but a request.
func (s *story) asleep() {
	s.step("A sandbox without traffic sleeps, and a plain request wakes it")
	s.show("sandbox", "exec", "gamma", "--", "sh", "-c", "echo hello from gamma > /dev/shm/hello && httpd -p 8080 -h /dev/shm")
	s.asks("delta")
	s.say("ipamd freezes gamma's task. Traffic to port 8080 shall wake it, and a second without any")
	s.say("shall have ipamd freeze it again:")
	id := s.whois(site).Lease.ID
	s.show("ipamctl", "pause", id, "--mode", "freeze", "--do", "--wake-port", "8080", "--repause-after", "1s")
	s.eventually(s.sleeps, "gamma's task stands still, and its address stays its own")
	s.say("delta knows nothing of that. It asks gamma by wget, as before:")
	s.asks("delta")
	s.flight(id, "10.8.64.5")
	s.say("No request arrives any more.")
	s.eventually(s.sleeps, "gamma was idle for a second, and is paused again by itself")
	s.asks("alpha")
	s.flight(id, lost)
	s.show("ipamctl", "history", site)
	s.eventually(s.sleeps, "and it sleeps again")
}

// asks has a sandbox ask gamma, once.
func (s *story) asks(from string) {
	out := s.run("sandbox", "exec", from, "--", "wget", "-q", "-O", "-", "http://"+site+":8080/hello")
	s.check(strings.TrimSpace(out) == "hello from gamma", "%s is answered: %s", from, strings.TrimSpace(out))
}

// flight checks who woke gamma last. The answer may arrive before ipamd has recorded the wake's end.
func (s *story) flight(id, source string) {
	var f *api.Flight
	over := func() bool {
		f = got[*api.LeaseReply](s)(s.client.Lease(context.Background(), id)).Lease.Sleep.Flight
		return f != nil && f.Ended != nil && f.Cause.Source == source
	}
	s.eventually(over, "the request has woken it")
	s.check(f.Result == "woken" && f.Cause.Port == 8080,
		"it was woken by %s from %s to port %d, within %v", f.Cause.Protocol, f.Cause.Source, f.Cause.Port, f.Ended.Sub(f.Begun))
}

// sleeps reports whether gamma's lease is paused and its task stands still, by the book and
// by containerd.
func (s *story) sleeps() bool {
	who := s.whois(site)
	return who.State == api.Paused && slices.ContainsFunc(who.Witnesses, func(w api.WitnessAnswer) bool {
		return w.Witness == "runtime" && slices.ContainsFunc(w.Seen, func(e api.Sighting) bool { return e.Task == "paused" })
	})
}
