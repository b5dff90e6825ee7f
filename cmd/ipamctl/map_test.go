package main

import (
	"fmt"
	"net/netip"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/internal/poolmap"
	"github.com/ipamd/ipamd/internal/term"
)

// The map of small and big pools, of both families, at the widths people
// have, with and without colour.
func TestMapAtWidths(t *testing.T) {
	at := func(prefix string, held ...string) *world {
		w := &world{pools: []api.Pool{poolOf(t, prefix)}}
		all := poolmap.States()
		for i, addr := range held {
			w.leases = append(w.leases, lease(i+1, addr, api.State(all[i%len(all)]), "s", time.Minute))
		}
		return w.serve(t)
	}
	slash24 := at("10.8.64.0/24", "10.8.64.2", "10.8.64.3", "10.8.64.4", "10.8.64.5", "10.8.64.6", "10.8.64.7", "10.8.64.130", "10.8.64.254", "10.8.65.9")
	slash24.pools[0].Exclude = []string{"10.8.64.200-10.8.64.210", "10.8.64.205-10.8.64.220", "10.8.64.64/28"}
	slash16 := at("10.8.0.0/16", "10.8.0.2", "10.8.0.3", "10.8.64.7", "10.8.255.254")
	slash16.pools[0].Exclude = []string{"10.8.70.0/23"}
	slash30 := at("10.8.64.0/30", "10.8.64.2")
	slash31 := at("10.8.64.0/31")
	slash31.pools[0].Gateway = ""
	slash32 := at("10.8.64.9/32", "10.8.64.9")
	slash32.pools[0].Gateway = ""
	slash64 := at("fd00:8:64::/64", "fd00:8:64::2", "fd00:8:64::1:7", "fd00:8:64::ffff:0:0:1")
	slash48 := at("fd00:8:64::/48", "fd00:8:64:1::2")
	newer := at("10.8.64.0/28", "10.8.64.2")
	newer.leases[0].State = "hibernated" // by a daemon that is newer than this ipamctl
	sibling := at("10.8.64.0/29", "10.8.64.2")
	other := poolOf(t, "10.9.0.0/29")
	other.Name, other.UID = "lab", "p9"
	sibling.pools = append(sibling.pools, other)

	for _, show := range []struct {
		name  string
		world *world
		args  []string
	}{
		{"24", slash24, nil}, {"16", slash16, nil}, {"30", slash30, nil}, {"31", slash31, nil}, {"32", slash32, nil},
		{"v6-64", slash64, nil}, {"v6-48", slash48, nil}, {"newer", newer, nil}, {"two", sibling, nil},
		{"within", slash16, []string{"--within", "10.8.64.5-10.8.64.80"}},
		{"within-v6", slash64, []string{"--within", "fd00:8:64::1:0/122"}},
	} {
		t.Run(show.name, func(t *testing.T) {
			var b strings.Builder
			for _, width := range []int{40, 80, 200} {
				plain := &screen{env: map[string]string{"COLUMNS": fmt.Sprint(width)}}
				args := append([]string{"map"}, show.args...)
				if code := show.world.ctl(t, plain, args...); code != 0 {
					t.Fatalf("exit %d: %s", code, plain.err.String())
				}
				fmt.Fprintf(&b, "# %d columns\n%s\n", width, plain.out.String())

				coloured := &screen{terminal: true, columns: width}
				show.world.ctl(t, coloured, args...)
				if !strings.Contains(coloured.out.String(), "\x1b[") {
					t.Error("a terminal got no colour")
				}
				if bare := sgr.ReplaceAllString(coloured.out.String(), ""); bare != plain.out.String() {
					t.Errorf("colour changes more than colour:\n%s\n%s", bare, plain.out.String())
				}
				if width == 80 {
					fmt.Fprintf(&b, "# %d columns, in colour\n%s\n", width, coloured.out.String())
				}
				for line := range strings.Lines(plain.out.String()) {
					if n := term.Width(strings.TrimSuffix(line, "\n")); n > width && !strings.Contains(line, " - ") && !strings.Contains(line, " on ") {
						t.Errorf("%d columns, not %d: %q", n, width, line)
					}
				}
			}
			golden(t, "map-"+show.name, b.String())
		})
	}
}

var sgr = regexp.MustCompile(`\x1b\[[0-9;]*m`)

// A /16 that is full of small pieces still ends, says what it left out, and
// how to see it.
func TestMapOfAFullPoolEnds(t *testing.T) {
	w := &world{pools: []api.Pool{poolOf(t, "10.8.0.0/16")}}
	addr := netip.MustParseAddr("10.8.0.2")
	for i := range 60_000 {
		l := lease(i%256, addr.String(), api.State(poolmap.States()[i%3]), "s", time.Minute)
		if i%7 != 0 {
			w.leases = append(w.leases, l)
		}
		addr = addr.Next()
	}
	w.serve(t)
	s := &screen{}
	if code := w.ctl(t, s, "map"); code != 0 {
		t.Fatalf("exit %d: %s", code, s.err.String())
	}
	if n := strings.Count(s.out.String(), "\n"); n > 64+8 {
		t.Errorf("%d lines", n)
	}
	output := regexp.MustCompile(`not drawn: --within (\S+)`).FindStringSubmatch(s.out.String())
	if output == nil {
		t.Fatalf("no way to see the rest:\n%s", s.out.String())
	}
	s = &screen{}
	if code := w.ctl(t, s, "map", "--within", output[1]); code != 0 || strings.Contains(s.out.String(), "not drawn") {
		t.Errorf("--within %s: exit %d:\n%s", output[1], code, s.out.String())
	}
}
