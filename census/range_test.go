package census

import (
	"errors"
	"net/netip"
	"slices"
	"testing"

	"go4.org/netipx"
)

// D3: a question about a range is answered by every sighting in it, however large it is, and
// by every silence.
func TestD3AboutRange(t *testing.T) {
	b := NewBoard(Netns, Probe)
	seen := make(map[string][]Sighting)
	all := []string{"10.8.64.15", "10.8.64.16", "10.8.64.31", "10.8.64.32", "fd00:8::7", "fd00:8:0:0:ffff::", "fd00:8:0:1::"}
	for _, s := range all {
		seen[s] = []Sighting{{Addr: netip.MustParseAddr(s)}}
	}
	b.Replace(Netns, seen, nil)
	b.Silence(Probe, errors.New("why"))
	for prefix, want := range map[string][]string{
		"10.8.64.16/28": {"10.8.64.16", "10.8.64.31"}, "10.8.64.16/30": {"10.8.64.16"}, "10.8.64.20/30": nil, "10.8.64.32/32": {"10.8.64.32"},
		"fd00:8::/64": {"fd00:8::7", "fd00:8:0:0:ffff::"}, "fd00:8::/127": nil, "10.0.0.0/8": all[:4],
	} {
		p := netip.MustParsePrefix(prefix)
		last := netipx.PrefixLastIP(p)
		a := b.AboutRange(p.Addr(), last)
		addrs := func(seen []Sighting) (out []string) {
			for _, s := range seen {
				out = append(out, s.Addr.String())
			}
			return out
		}
		if got := addrs(a.Seen); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", prefix, got, want)
		}
		if len(a.Silent) != 1 || a.Silent[0].Witness != Probe || !slices.Equal(a.Answered, []Witness{Netns}) {
			t.Errorf("%s: %v %v", prefix, a.Silent, a.Answered)
		}
		if got := b.Census().In(p.Addr(), last); !slices.Equal(got, a.Seen) {
			t.Errorf("%s: the census has %v, the board %v", prefix, got, a.Seen)
		}
	}
}
