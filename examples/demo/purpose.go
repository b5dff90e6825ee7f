package main

import (
	"context"
	"slices"
	"strings"

	"github.com/ipamd/ipamd/api"
)

// onPurpose has a sandbox take its neighbour's address by hand, which no book can prevent.
func (s *story) onPurpose() {
	s.step("The incident made on purpose, and refused")
	s.say("delta's root gives its interface alpha's address, and announces it:")
	delta, gamma := s.inside("10.8.64.5"), s.inside(site)
	s.show("nsenter", delta, "ip", "address", "add", lost+"/29", "dev", "eth0")
	s.show("nsenter", delta, "busybox", "arping", "-U", "-c", "3", "-I", "eth0", lost)
	s.say("The kernel has rules that are made from the book: delta's port may send by delta's")
	s.say("address alone. No sandbox received it, and alpha is where it was:")
	s.reaches("gamma", lost)
	alpha := s.whois(lost).Lease.MAC
	known := s.run("nsenter", gamma, "ip", "neigh", "show", lost)
	s.check(strings.Contains(known, alpha), "gamma knows %s by alpha's MAC, %s", lost, alpha)
	s.show("ipamctl", "rules", "delta")
	s.eventually(func() bool { return s.refused("delta") >= 3 }, "ipamd has counted what delta's port was refused, and names its lease")
	s.show("nsenter", delta, "ip", "address", "delete", lost+"/29", "dev", "eth0")
	s.eventually(func() bool { return len(s.whois(lost).Lease.Conflict) == 0 }, "delta gave it up, and nothing is left of it")
}

// inside is how a command is run in the network namespace of an address's sandbox.
func (s *story) inside(addr string) string { return "--net=" + s.whois(addr).Lease.Netns }

// refused counts the ARP packets that the port of a sandbox was refused.
func (s *story) refused(sandbox string) (n uint64) {
	rules := got[*api.RulesReply](s)(s.client.Rules(context.Background(), ""))
	for _, p := range rules.Ports {
		if slices.ContainsFunc(p.Allowed, func(a api.Allowed) bool { return a.Sandbox == sandbox }) {
			for _, r := range p.Refused {
				if r.Reason == "arp" {
					n += r.Packets
				}
			}
		}
	}
	return n
}
