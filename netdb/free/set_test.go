package free

import (
	"net/netip"
	"testing"

	"pgregory.net/rapid"

	"github.com/ipamd/ipamd/internal/ranges"
)

// The set of ranges is compared with a plain set of addresses.
func TestSetAgainstAMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		base := rapid.SampledFrom([]string{"0.0.0.0", "10.0.0.0", "255.255.255.192", "fd00::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffc0"}).Draw(t, "base")
		all := make([]netip.Addr, 0, 64)
		for a := netip.MustParseAddr(base); len(all) < 64; a = a.Next() {
			all = append(all, a)
		}
		s, model := NewSet(), make(map[netip.Addr]bool)
		index := rapid.IntRange(0, len(all)-1)
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				i := index.Draw(t, "from")
				j := i
				for n := rapid.IntRange(0, 8).Draw(t, "more"); n > 0 && j+1 < len(all) && !model[all[j+1]]; n-- {
					j++
				}
				if model[all[i]] {
					t.Skip("taken")
				}
				s.Add(ranges.Between(all[i], all[j]))
				for ; i <= j; i++ {
					model[all[i]] = true
				}
			},
			"remove": func(t *rapid.T) {
				a := all[index.Draw(t, "at")]
				if got := s.Remove(a); got != model[a] {
					t.Fatalf("remove %s = %v", a, got)
				}
				delete(model, a)
			},
			"take": func(t *rapid.T) {
				i := index.Draw(t, "from")
				j := min(len(all)-1, i+rapid.IntRange(0, 20).Draw(t, "more"))
				s.Take(ranges.Between(all[i], all[j]))
				for ; i <= j; i++ {
					delete(model, all[i])
				}
			},
			"": func(t *rapid.T) {
				if s.Count() != uint64(len(model)) {
					t.Fatalf("count %d, want %d", s.Count(), len(model))
				}
				i := index.Draw(t, "next")
				var want netip.Addr
				for k := range all {
					if a := all[(i+k)%len(all)]; model[a] {
						want = a
						break
					}
				}
				if got, ok := s.Next(all[i]); got != want || ok != want.IsValid() {
					t.Fatalf("next(%s) = %s, want %s", all[i], got, want)
				}
				seen := make(map[netip.Addr]bool)
				for _, a := range s.Upcoming(all[i], 100) {
					if !model[a] || seen[a] {
						t.Fatalf("upcoming gave %s", a)
					}
					seen[a] = true
				}
				if len(seen) != len(model) {
					t.Fatalf("upcoming gave %d of %d", len(seen), len(model))
				}
			},
		})
	})
}

// A number of addresses that does not fit is the highest that does.
func TestMoreAddressesThanCanBeCounted(t *testing.T) {
	for text, want := range map[string]uint64{"10.0.0.0/24": 256, "fd00::/65": 1 << 63, "fd00::/64": 1<<64 - 1, "::/0": 1<<64 - 1} {
		r, err := ranges.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		s := NewSet()
		s.Add(r)
		if s.Count() != want {
			t.Errorf("%s has %d addresses, want %d", text, s.Count(), want)
		}
	}
}
