package gateways

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/ipamd/ipamd/bridge"
	"github.com/ipamd/ipamd/ipam"
)

func TestOf(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		pools                      string // PREFIX>GATEWAY
		before, held, want, former string
		gone, leased               string
	}{
		"at the start nothing is former":       {pools: "10.8.0.0/24>10.8.0.1", want: "10.8.0.1/24"},
		"a pool that goes":                     {before: "10.8.0.1/24", former: "10.8.0.1/24"},
		"with a lease left in it":              {before: "10.8.0.1/24", held: "10.8.0.9", want: "10.8.0.1/24"},
		"with a lease of another pool":         {pools: "10.9.0.0/24>10.9.0.1", before: "10.8.0.1/24 10.9.0.1/24", held: "10.9.0.9", want: "10.9.0.1/24", former: "10.8.0.1/24"},
		"a grow":                               {pools: "10.8.0.0/23>10.8.0.1", before: "10.8.0.1/24", held: "10.8.0.9", want: "10.8.0.1/23", former: "10.8.0.1/24"},
		"a shrink over no lease":               {pools: "10.8.0.0/25>10.8.0.1", before: "10.8.0.1/24", held: "10.8.0.9", want: "10.8.0.1/25", former: "10.8.0.1/24"},
		"a shrink over a sandbox":              {pools: "10.8.0.0/25>10.8.0.1", before: "10.8.0.1/24", held: "10.8.0.200", want: "10.8.0.1/25 10.8.0.1/24"},
		"a move":                               {pools: "10.9.0.0/24>10.9.0.1", before: "10.8.0.1/24", held: "10.8.0.9", want: "10.9.0.1/24 10.8.0.1/24"},
		"another gateway of the prefix":        {pools: "10.8.0.0/24>10.8.0.254", before: "10.8.0.1/24", held: "10.8.0.9", want: "10.8.0.254/24 10.8.0.1/24"},
		"another gateway, with no lease there": {pools: "10.8.0.0/24>10.8.0.254", before: "10.8.0.1/24", want: "10.8.0.254/24", former: "10.8.0.1/24"},
		"IPv6, a shrink over no lease":         {pools: "fd00::/65>fd00::1", before: "fd00::1/64", held: "fd00::9", want: "fd00::1/65", former: "fd00::1/64"},
		"IPv6, a shrink over a sandbox":        {pools: "fd00::/65>fd00::1", before: "fd00::1/64", held: "fd00::ffff:0:0:9", want: "fd00::1/64"},
		"a former one is not wanted again":     {pools: "10.8.0.0/25>10.8.0.1", before: "10.8.0.1/25", gone: "10.8.0.1/24 10.8.0.254/24", held: "10.8.0.9 10.8.0.200", want: "10.8.0.1/25", former: "10.8.0.1/24 10.8.0.254/24"},
		"IPv6, a former length":                {pools: "fd00::/64>fd00::ff", before: "fd00::1/64", gone: "fd00::1/56", held: "fd00::9", want: "fd00::ff/64 fd00::1/64", former: "fd00::1/56"},
		"a pool's own again":                   {pools: "10.8.0.0/24>10.8.0.1", before: "10.8.0.254/24", gone: "10.8.0.1/24", want: "10.8.0.1/24", former: "10.8.0.254/24"},
		"kept for itself":                      {pools: "10.8.0.0/24>10.8.0.254", before: "10.8.0.1/24", held: "10.8.0.1", want: "10.8.0.254/24", former: "10.8.0.1/24"},
		"a sandbox's by now":                   {pools: "10.8.0.0/24>10.8.0.254", before: "10.8.0.1/24", held: "10.8.0.1 10.8.0.9", leased: "10.8.0.1 10.8.0.9", want: "10.8.0.254/24", former: "10.8.0.1/24"},
	} {
		var pools []ipam.PoolSpec
		for p := range strings.FieldsSeq(c.pools) {
			prefix, gateway, _ := strings.Cut(p, ">")
			pools = append(pools, ipam.PoolSpec{Prefix: netip.MustParsePrefix(prefix), Gateway: netip.MustParseAddr(gateway)})
		}
		want, former := Of(pools, bridge.Desired{Gateways: each(c.before, netip.MustParsePrefix), Former: each(c.gone, netip.MustParsePrefix)},
			each(c.held, netip.MustParseAddr), each(c.leased, netip.MustParseAddr))
		if got := strings.Trim(fmt.Sprint(want), "[]"); got != c.want {
			t.Errorf("%s: wanted are %s, not %s", name, got, c.want)
		}
		if got := strings.Trim(fmt.Sprint(former), "[]"); got != c.former {
			t.Errorf("%s: former are %s, not %s", name, got, c.former)
		}
	}
}

func each[T any](words string, parse func(string) T) (out []T) {
	for w := range strings.FieldsSeq(words) {
		out = append(out, parse(w))
	}
	return out
}
