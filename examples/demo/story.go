package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/client"
)

// lost is the address whose lease the book loses: alpha's, the first of the
// pool. kept is beta's, which a removal that fails must keep.
const (
	lost = "10.8.64.2"
	kept = "10.8.64.3"
)

// A story is a runner's, step by step.
type story struct {
	*output
	client     *client.Client // asks the daemon, for the checks
	containerd *daemon
	ipamd      *daemon
}

func (s *story) play() {
	for _, step := range []func(){
		s.begin, s.threeSandboxes, s.ping, s.operator, s.skipAhead, s.loseLease, s.fourth, s.evidence, s.undisturbed, s.onPurpose, s.asleep,
		s.failedRemoval, s.keptBack, s.confirmed, s.withoutContainerd,
	} {
		step()
	}
	s.end()
}

// got is what the daemon answered to a check.
func got[T any](s *story) func(T, error) T {
	return func(answer T, err error) T {
		s.must(err)
		return answer
	}
}

func (s *story) whois(addr string) *api.WhoisReply {
	return got[*api.WhoisReply](s)(s.client.Whois(context.Background(), addr))
}

func (s *story) status() *api.Status {
	return got[*api.Status](s)(s.client.Status(context.Background()))
}

func (s *story) leases() []api.Lease {
	return got[*api.LeaseList](s)(s.client.Leases(context.Background(), client.LeaseFilter{})).Leases
}

// begin starts the daemons.
func (s *story) begin() {
	s.step("A runner: containerd and ipamd")
	s.say("In namespaces of their own, which end with this demo. The host is not touched.")
	s.startContainerd()
	s.say("containerd runs. ipamd shall make the bridge rt0 and manage five addresses:")
	for line := range strings.Lines(ipamdConfig) {
		s.say("    %s", strings.TrimSpace(line))
	}
	s.startIPAMD()
	s.show("ipamctl", "status")
	st := s.status()
	s.check(st.Ready && len(st.Silent) == 0 && st.Bridge.Ready, "ipamd is ready, and every witness answers")
}

// threeSandboxes runs three containers.
func (s *story) threeSandboxes() {
	s.step("Three sandboxes")
	s.say("The example runtime asks ipamd for an address, sets it on the container's veth, writes it")
	s.say("to the container's labels, and ipamd records where it went.")
	first := [][2]string{{"alpha", lost}, {"beta", kept}, {"gamma", "10.8.64.4"}}
	for _, pair := range first {
		s.show("sandbox", "run", pair[0])
	}
	for _, pair := range first {
		s.owns(pair[0], pair[1])
	}
}

// owns checks that an address belongs to a sandbox, by the book, the kernel
// and containerd.
func (s *story) owns(name, addr string) {
	who := s.whois(addr)
	s.check(who.Owner == name && who.State == api.Bound, "%s is bound to %s in the book", addr, name)
	s.eventually(func() bool {
		who := s.whois(addr)
		return seenBy(who, "netns", "") && seenBy(who, "runtime", name)
	}, "kernel and containerd see it there")
}

// seenBy reports whether a witness sees the address, in that container if one
// is named.
func seenBy(who *api.WhoisReply, witness, container string) bool {
	return slices.ContainsFunc(who.Witnesses, func(w api.WitnessAnswer) bool {
		return w.Witness == witness && w.Answer == "seen" && has(w.Seen, witness, container)
	})
}

func has(seen []api.Sighting, witness, container string) bool {
	return slices.ContainsFunc(seen, func(e api.Sighting) bool {
		return e.Witness == witness && (container == "" || e.Container == container)
	})
}

// ping has the sandboxes reach each other.
func (s *story) ping() {
	s.step("They reach each other")
	for _, pair := range [][2]string{{"alpha", kept}, {"beta", "10.8.64.4"}, {"gamma", lost}, {"gamma", "10.8.64.1"}} {
		s.reaches(pair[0], pair[1])
	}
}

// reaches sends another packet where one is lost: all namespaces of a machine share a
// table of neighbours, and while others fill it no new one is found.
func (s *story) reaches(name, addr string) {
	command := []string{"sandbox", "exec", name, "--", "ping", "-q", "-c", "1", "-W", "3", addr}
	var printed strings.Builder
	var err error
	for range 10 {
		printed.Reset()
		if err = s.try(io.MultiWriter(os.Stdout, &printed), command); err == nil {
			break
		}
	}
	s.must(err)
	s.check(strings.Contains(printed.String(), " 0% packet loss"), "%s reaches %s", name, addr)
}

// operator shows what an operator sees.
func (s *story) operator() {
	s.step("What an operator sees")
	s.show("ipamctl", "leases")
	s.show("ipamctl", "map")
	s.show("ipamctl", "whois", lost)
	s.check(len(s.leases()) == 3, "there are three leases")
}

// skipAhead moves the walk over never-used addresses to the pool's end, so that the lost
// one is next.
func (s *story) skipAhead() {
	s.step("Time passes")
	s.say("ipamd walks through the pool and does not begin again at the low end for every request.")
	s.say("Two requests that never become a sandbox bring the walk to the pool's last address, so")
	s.say("the next request gets the lowest free one.")
	for _, addr := range []string{"10.8.64.5", "10.8.64.6"} {
		name := "visitor-" + addr[len(addr)-1:]
		s.show("ipamctl", "allocate", name)
		who := s.whois(addr)
		s.check(who.Owner == name, "%s got %s", name, addr)
		s.show("ipamctl", "release", who.Lease.ID)
		s.check(s.whois(addr).State == api.Free, "%s, never bound and never seen, is free at once", addr)
	}
}

// loseLease makes book and wire differ.
func (s *story) loseLease() {
	s.step("The incident: the book loses the lease of a running sandbox")
	s.say("ipamd is stopped, and the row of alpha's address is deleted from its book.")
	s.must(s.ipamd.stop())
	out := s.run("sqlite3", book, "DELETE FROM leases WHERE address = '"+lost+"'; SELECT changes();")
	s.check(strings.TrimSpace(out) == "1", "one row is gone")
	s.reaches("beta", lost)
	s.say("alpha runs on, and needs no ipamd for it. ipamd is started again.")
	s.startIPAMD()
	s.show("ipamctl", "whois", lost)
	s.owns("alpha", lost)
}

// fourth asks for the address that a lease table alone would give twice.
func (s *story) fourth() {
	s.step("Another sandbox asks")
	s.say("A lease table alone would give it %s, the lowest address without a row. But before ipamd", lost)
	s.say("answered its first request, it found alpha there and wrote the lease anew.")
	s.show("sandbox", "run", "delta")
	s.owns("delta", "10.8.64.5")
	var moves []string
	history := got[*api.ChangeList](s)(s.client.History(context.Background(), client.HistoryFilter{Limit: 5}))
	for _, c := range slices.Backward(history.Changes) {
		if c.From == api.Free && (c.Address == lost || c.Sandbox == "delta") {
			moves = append(moves, fmt.Sprintf("%s %s>%s", c.Address, c.From, c.To))
		}
	}
	s.check(slices.Equal(moves, []string{lost + " free>bound", "10.8.64.5 free>reserved"}),
		"the history agrees: %s", strings.Join(moves, ", "))
}

// evidence shows by what the lease was found again.
func (s *story) evidence() {
	s.step("The evidence")
	s.show("ipamctl", "history", lost)
	s.show("ipamctl", "map")
	s.show("ipamctl", "doctor")
	adopted := s.whois(lost).History[0]
	s.check(adopted.Actor == "reconciler" && adopted.From == api.Free && adopted.To == api.Bound,
		"alpha's lease was adopted, and no other sandbox had the address in between")
	s.check(has(adopted.Evidence, "netns", "") && has(adopted.Evidence, "runtime", "alpha"),
		"the evidence names the network namespace behind a port, and the container alpha")
}

// undisturbed checks that all sandboxes have what they had.
func (s *story) undisturbed() {
	s.step("No sandbox was disturbed")
	for _, pair := range [][2]string{{"delta", lost}, {"alpha", "10.8.64.5"}, {"gamma", lost}} {
		s.reaches(pair[0], pair[1])
	}
	holders := make(map[string]int)
	running := 0
	for line := range strings.Lines(s.run("sandbox", "ps")) {
		if f := strings.Fields(line); len(f) == 4 && f[2] == "running" {
			holders[f[1]]++
			running++
		}
	}
	s.check(running == 4 && len(holders) == 4, "four sandboxes run, each with an address of its own")
}
