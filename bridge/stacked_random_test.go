package bridge

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/ipamd/ipamd/internal/nstest"
	"github.com/ipamd/ipamd/internal/realtest"
)

// Guests come and end, their links on the bridge come and go, ports go, news is lost, and searches
// begin, run and end in between. No address is unseen while it is live and the witness speaks, and in the
// end none is seen that is gone.
func TestF19LinksThatComeAndGoAtRandom(t *testing.T) {
	t.Parallel()
	ns := nstest.New(t)
	ns.Bridge("rt0", "10.8.0.1/16")
	v := open(t, ns)
	type guest struct {
		*nstest.NS
		links          map[string]string // addresses by name
		port, portAddr string            // of one that has a port
	}
	var guests []*guest
	made := 0
	live, gone := make(map[string]bool), make(map[string]bool)
	next := func() string { made++; a := fmt.Sprintf("10.8.1.%d", made); live[a] = true; return a }
	end := func(a string) { delete(live, a); gone[a] = true }
	var under *search // that is under way
	var result error
	ran := false
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	steps := map[string]func(g *guest){
		"a guest ends": func(g *guest) {
			for _, a := range g.links {
				end(a)
			}
			if g.port != "" {
				end(g.portAddr)
			}
			g.Delete()
			g.NS = nil
		},
		"a link comes": func(g *guest) {
			a := next()
			name := fmt.Sprint("m", made)
			macvlanIn(ns, g.NS, name)
			g.AddAddr(name, a+"/16")
			g.links[name] = a
		},
		"a link goes": func(g *guest) {
			for name, a := range g.links {
				g.Exec("ip", "link", "del", name)
				delete(g.links, name)
				end(a)
				return
			}
		},
		"a port goes": func(g *guest) {
			if g.port != "" {
				ns.Exec("ip", "link", "del", g.port)
				g.port = ""
				end(g.portAddr)
			}
		},
		"a search begins": func(*guest) {
			if under == nil {
				v.mu.Lock()
				v.netns.stacked.again = false
				under, ran = v.newSearch(), false
				v.mu.Unlock()
			}
		},
		"it runs": func(*guest) {
			if under != nil && !ran {
				result, ran = under.run(t.Context()), true
			}
		},
		"it ends": func(*guest) {
			if under != nil && ran {
				if err := under.end(t.Context(), v.Bridge, result); err != nil {
					t.Fatal(err)
				}
				under = nil
			}
		},
		"news is lost": func(*guest) {
			v.mu.Lock()
			v.lost = true
			v.mu.Unlock()
		},
	}
	often := []string{"a guest ends", "a link comes", "a link comes", "a link comes", "a link goes", "a link goes", "a port goes",
		"a search begins", "it runs", "it ends", "it ends", "news is lost"}
	var did []string
	for range 100 {
		for i := range guests { // of those that ended, another comes
			if g := guests[i]; g.NS == nil {
				guests[i] = guests[len(guests)-1]
				guests = guests[:len(guests)-1]
				break
			}
		}
		if len(guests) < 3 {
			g := &guest{links: make(map[string]string)}
			if r.IntN(2) == 0 {
				g.NS = nstest.New(t)
			} else {
				g.portAddr = next()
				p := ns.Port("rt0", g.portAddr+"/16")
				g.NS, g.port = p.NS, p.HostName
			}
			guests = append(guests, g)
		}
		do := often[r.IntN(len(often))]
		did = append(did, do)
		steps[do](guests[r.IntN(len(guests))])
		if r.IntN(3) == 0 {
			continue
		}
		for a := range live {
			if seen, err := v.settledSees(a); !seen && err == nil {
				t.Fatalf("seed %d: after %q %s is live and not seen", seed, did, a)
			}
		}
	}
	steps["it runs"](nil)
	steps["it ends"](nil)
	realtest.Eventually(t, wait, fmt.Sprintf("what is gone to be seen no more, with the seed %d", seed), func() bool {
		v.settle()
		if v.pending().search {
			if err := v.searchStacked(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		v.settle()
		for a := range gone {
			if v.seen(a) {
				return false
			}
		}
		return !v.hasUnsearched()
	})
	for a := range live {
		v.expect(a, "netns")
	}
	v.noneSilent()
	v.mu.Lock()
	defer v.mu.Unlock()
	want, got := 0, 0
	for _, g := range guests {
		if g.NS != nil {
			want += len(g.links)
		}
	}
	for _, n := range v.netns.stacked.nests {
		got += len(n.links)
	}
	if st := &v.netns.stacked; got != want || len(st.ended) > 0 || len(st.came) > 0 {
		t.Errorf("seed %d: %d links are known, want %d; %d namespaces have ended, links of %d are to be looked up", seed, got, want, len(st.ended), len(st.came))
	}
}
