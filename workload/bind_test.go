package workload

import (
	"slices"
	"strings"
	"testing"

	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/ipam"
)

// What a bind's warnings are, by what it names and what the kernel shows.
func TestF29BindDiffers(t *testing.T) {
	const mac, hostMAC, other = "02:00:00:00:00:01", "fe:00:00:00:00:01", "02:00:00:00:00:99"
	ports := map[string]string{"veth1": hostMAC, "veth2": "fe:00:00:00:00:02"}
	own := census.Sighting{Witness: census.Netns, Port: "veth1", MAC: mac, Netns: census.NewNetnsID(7, "blue")}
	strange := census.Sighting{Witness: census.Netns, Port: "veth2", MAC: other, Netns: census.NewNetnsID(8, "")}
	answer := census.Sighting{Witness: census.Probe, Port: "veth1", MAC: other}
	both := ipam.Binding{HostInterface: "veth1", MAC: mac}
	type seen = []census.Sighting
	for name, tt := range map[string]struct {
		recorded ipam.Binding // beside what is asked
		asked    ipam.Binding
		seen     seen
		netns    Namespace
		want     []string // field, given, seen
	}{
		"all as it is":                        {asked: both, seen: seen{own, answer}},
		"nothing is seen yet":                 {asked: ipam.Binding{HostInterface: "veth9", MAC: mac, Netns: "/n"}},
		"the wire alone answers":              {asked: both, seen: seen{answer}},
		"containers alone":                    {asked: ipam.Binding{Containers: []ipam.Container{{Namespace: "n", ID: "c"}}}, recorded: ipam.Binding{MAC: other}, seen: seen{own}},
		"the host end's MAC":                  {asked: ipam.Binding{HostInterface: "veth1", MAC: hostMAC}, seen: seen{own}, want: []string{"mac", hostMAC, mac}},
		"the same, before it has the address": {asked: ipam.Binding{HostInterface: "veth1", MAC: hostMAC}, want: []string{"mac", hostMAC, ""}},
		"the same, its port is recorded":      {recorded: ipam.Binding{HostInterface: "veth1"}, asked: ipam.Binding{MAC: hostMAC}, seen: seen{own}, want: []string{"mac", hostMAC, mac}},
		"another MAC":                         {asked: ipam.Binding{MAC: other}, seen: seen{own}, want: []string{"mac", other, mac}},
		"another MAC, a stranger has it":      {asked: ipam.Binding{HostInterface: "veth1", MAC: other}, seen: seen{strange, own}, want: []string{"mac", other, mac}},
		"a stranger beside it":                {asked: both, seen: seen{strange, own}},
		"a MAC of both ends":                  {asked: ipam.Binding{MAC: hostMAC}, seen: seen{{Witness: census.Netns, Port: "veth1", MAC: hostMAC}}},
		"a MAC that could not be read":        {asked: both, seen: seen{{Witness: census.Netns, Port: "veth1"}}},
		"no port of the bridge":               {asked: ipam.Binding{HostInterface: "eth0", MAC: mac}, seen: seen{own}, want: []string{"host_interface", "eth0", "veth1"}},
		"another port":                        {asked: ipam.Binding{HostInterface: "veth2"}, seen: seen{own}, want: []string{"host_interface", "veth2", "veth1"}},
		"one of several ports to it": {asked: ipam.Binding{HostInterface: "veth2"},
			seen: seen{{Witness: census.Netns, Port: "veth1", MAC: mac, Leads: census.NewPorts("veth1", "veth2")}}},
		"the namespace":                     {asked: ipam.Binding{Netns: "/n"}, seen: seen{own}, netns: Namespace{Known: true, ID: census.NewNetnsID(7, "")}},
		"another namespace":                 {asked: ipam.Binding{Netns: "/n"}, seen: seen{own}, netns: Namespace{Known: true, ID: census.NewNetnsID(70, "")}, want: []string{"netns", "/n", "nsid:7 (blue)"}},
		"one that no port leads to":         {asked: ipam.Binding{Netns: "/n"}, seen: seen{own}, netns: Namespace{Known: true}, want: []string{"netns", "/n", "nsid:7 (blue)"}},
		"one that could not be asked about": {asked: ipam.Binding{Netns: "/n"}, seen: seen{own}},
	} {
		t.Run(name, func(t *testing.T) {
			l := &ipam.Lease{HostInterface: tt.recorded.HostInterface, MAC: tt.recorded.MAC, Netns: tt.recorded.Netns}
			for at, to := range map[*string]string{&l.HostInterface: tt.asked.HostInterface, &l.MAC: tt.asked.MAC, &l.Netns: tt.asked.Netns} {
				if to != "" {
					*at = to
				}
			}
			var got []string
			for _, w := range BindDiffers(l, tt.asked, KernelView{Seen: tt.seen, Ports: ports, Netns: tt.netns}) {
				got = append(got, w.Field, w.Given, w.Seen)
				if w.Message == "" || !strings.Contains(w.Message, w.Seen) || !strings.Contains(w.Message, w.Given) {
					t.Errorf("its message: %q", w.Message)
				}
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}
