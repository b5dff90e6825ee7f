package poolmap

import (
	"math/big"
	"net/netip"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/internal/ranges"
)

// A tally says what walking every address would say, and the parts of a map
// cover the area once.
func TestMapAgainstWalking(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		prefix := netip.MustParsePrefix(rapid.SampledFrom([]string{
			"10.8.64.0/24", "10.8.48.0/20", "10.8.48.0/18", "10.8.64.8/29", "10.8.64.4/31", "10.8.64.4/32", "fd00::/115", "fd00::/120", "fd00::8/127",
		}).Draw(rt, "prefix")).Masked()
		all := ranges.Of(prefix)
		size := int(all.Size().Int64())
		pick := func(label string) netip.Addr {
			n := new(big.Int).SetBytes(all.From.AsSlice())
			n.Add(n, big.NewInt(int64(rapid.IntRange(0, size-1).Draw(rt, label))))
			a, _ := netip.AddrFromSlice(n.FillBytes(make([]byte, all.From.BitLen()/8)))
			return a
		}
		pool := api.Pool{Name: "default", UID: "p4", Prefix: prefix.String(), Bridge: "rt0"}
		if rapid.Bool().Draw(rt, "has a gateway") {
			pool.Gateway = pick("gateway").String()
		}
		for range rapid.IntRange(0, 4).Draw(rt, "exclusions") {
			a, b := pick("from"), pick("to")
			if b.Less(a) {
				a, b = b, a
			}
			pool.Exclude = append(pool.Exclude, a.String()+"-"+b.String())
		}
		var leases []api.Lease
		var taken []netip.Addr
		for range rapid.IntRange(0, 40).Draw(rt, "leases") {
			a := pick("lease")
			if slices.Contains(taken, a) {
				continue
			}
			taken = append(taken, a)
			state := rapid.SampledFrom(States()).Draw(rt, "state")
			leases = append(leases, api.Lease{Address: a.String(), PoolUID: "p4", State: api.State(state)})
		}
		f, err := New(pool, leases)
		if err != nil {
			rt.Fatal(err)
		}
		area := ranges.Between(pick("area from"), pick("area to"))
		if area.To.Less(area.From) {
			area.From, area.To = area.To, area.From
		}
		walked := map[byte]int64{}
		for a := area.From; ; a = a.Next() {
			walked[f.at(a)]++
			if a == area.To {
				break
			}
		}
		tally := f.tally(area)
		for _, k := range kinds() {
			n := tally[k.letter]
			if n == nil {
				n = new(big.Int)
			}
			if n.Int64() != walked[k.letter] {
				rt.Fatalf("%s: %s by tally, %d by walking", k.word, n, walked[k.letter])
			}
		}

		width := rapid.IntRange(1, 200).Draw(rt, "width")
		_, drawn, parts := f.layOut(area, width)
		if !drawn.Contains(area.From) || !drawn.Contains(area.To) {
			rt.Fatalf("%s was asked for, %s is drawn", area, drawn)
		}
		next := drawn.From
		for i, part := range parts {
			if part.From != next {
				rt.Fatalf("part %d begins at %s, not %s", i, part.From, next)
			}
			next = part.To.Next()
		}
		if last := parts[len(parts)-1].To; last != drawn.To {
			rt.Fatalf("the last part ends at %s, not %s", last, drawn.To)
		}
	})
}
