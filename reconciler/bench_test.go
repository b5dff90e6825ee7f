package reconciler

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/ipam"
)

// BenchmarkPlan is what a pass over 1 000 leases with 1 000 containers and
// 1 000 ports costs beside the readings: the copy of the board, and the plan,
// which finds nothing to do.
func BenchmarkPlan(b *testing.B) {
	const n = 1000
	board := census.NewBoard(runtime, netns)
	scopes := map[census.Witness]map[string][]census.Sighting{runtime: {}, netns: {}}
	var book []*ipam.Lease
	addr := netip.MustParseAddr("10.8.64.2")
	for i := range n {
		id, sandbox, port := fmt.Sprint("c", i), fmt.Sprint("s", i), fmt.Sprint("veth", i)
		book = append(book, &ipam.Lease{ID: fmt.Sprint("l", i), Addr: addr, State: bound, Sandbox: sandbox, UID: sandbox, Interface: "eth0",
			Since: boot, Containers: []ipam.Container{{Namespace: "default", ID: id}}, HostInterface: port, Netns: "/run/netns/" + sandbox})
		scopes[runtime][id] = []census.Sighting{{Addr: addr, Namespace: "default", Container: id, Sandbox: sandbox, Task: taskRunning}}
		scopes[netns][port] = []census.Sighting{{Addr: addr, Port: port, Netns: census.NewNetnsID(i, "")}}
		addr = addr.Next()
	}
	for w, all := range scopes {
		board.Replace(w, all, nil)
	}
	p := worldOf().policy
	p.place = func(netip.Addr) ipam.Place { return ipam.Place{Usable: true} }
	b.ReportAllocs()
	for b.Loop() {
		c := board.Census()
		v := &view{policy: p, book: book, census: c, whole: true, now: boot}
		v.index()
		if d := v.plan(memory{}, false); len(d.steps) != 0 || len(d.missed) != 0 || len(d.findings) != 0 {
			b.Fatalf("planned %q", d.list())
		}
	}
}
