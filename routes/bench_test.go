package routes

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/ipamd/ipamd/api"
)

// full is a table of 100 000 sandboxes, and their names.
func full(b *testing.B) (*Table, []Route) {
	routes := make([]Route, 100_000)
	addr := netip.MustParseAddr("10.0.0.0")
	for i := range routes {
		addr = addr.Next()
		routes[i] = route(fmt.Sprintf("sandbox-%06d", i), addr.String(), api.Bound, int64(i+1))
	}
	return listed(b, int64(len(routes)), routes...), routes
}

func BenchmarkLookup(b *testing.B) {
	table, routes := full(b)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if _, ok := table.Lookup(routes[i%len(routes)].Sandbox); !ok {
			b.Fatal("no route")
		}
	}
}

func BenchmarkApply(b *testing.B) {
	table, routes := full(b)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		r := routes[i%len(routes)]
		r.Revision = int64(len(routes) + i + 1)
		if err := table.Apply(epoch, r); err != nil {
			b.Fatal(err)
		}
	}
}
