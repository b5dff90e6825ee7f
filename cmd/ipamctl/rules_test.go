package main

import (
	"testing"

	"github.com/ipamd/ipamd/api"
)

// TestRulesSessions plays the verb: rules that hold, that differ, and that are off.
func TestRulesSessions(t *testing.T) {
	w := pooled()
	w.rules = api.RulesReply{Mode: "enforce", Unleased: "allow", Table: "bridge ipamd", Held: true, Elements: 12, Compared: true, Foreign: 2, Repairs: 2,
		Ports: []api.PortRules{
			{Port: "veth1", Index: 7, Bridge: "rt0", Allowed: []api.Allowed{
				{Address: "10.8.64.2", MAC: "02:00:00:00:00:01", LeaseID: id(2), Sandbox: "web-1"}, {Address: "fd00:8::/96", MAC: "02:00:00:00:00:01", LeaseID: id(3), Sandbox: "web-1"}},
				Refused: []api.Refused{{Reason: "arp", Packets: 20, Bytes: 840}, {Reason: "ipv4", Packets: 3, Bytes: 252}}},
			{Port: "veth2", Index: 8, Bridge: "rt0", Allowed: []api.Allowed{}},
			{Port: "uplink0", Index: 9, Bridge: "rt0", Trusted: true, Allowed: []api.Allowed{}},
		}, Kept: []api.Allowed{{Address: "10.8.64.9", LeaseID: id(9), Sandbox: "hibernates"}}, Gone: []api.Refused{{Reason: "type", Packets: 1, Bytes: 60}}, Revision: 812, Epoch: epoch}
	out := w.serve(t).session(t, "rules", "rules web-1 -q", "rules veth2", "rules fd00:8::7 -q", "rules "+id(2)[len(id(2))-8:]+" -q", "rules 10.8.64.9", "rules nowhere", "show "+id(2), "show "+id(2)+" -o json")
	differs := pooled()
	differs.rules = w.rules
	differs.rules.Differences = []api.RuleDifference{{Missing: true, Element: true, What: `ipv4 { "veth1" . 02:00:00:00:00:01 . 10.8.64.2 }`, Port: "veth1", LeaseID: id(2)}, {What: "chain ports has other rules"},
		{Element: true, What: `macs { 10.8.64.3 }`}, {What: "chain ports { } has the policy to drop"}}
	out += differs.serve(t).session(t, "rules")
	off := pooled()
	off.rules = api.RulesReply{Mode: "off", Ports: []api.PortRules{}, Revision: 812, Epoch: epoch}
	golden(t, "rules", out+off.serve(t).session(t, "rules", "rules -o yaml"))
}
