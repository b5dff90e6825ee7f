package main

import (
	"encoding/json"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Each peer gives what is free, each address once, and takes it back: it was
// filled as it fills itself.
func TestEachPeerGivesWhatIsFree(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	plugin := exec.Command("go", "build", "-o", filepath.Join(filepath.Dir(self), "host-local"), "tool")
	if out, err := plugin.CombinedOutput(); err != nil {
		t.Fatalf("build host-local: %v\n%s", err, out)
	}
	t.Setenv("IP_COOLDOWN_PERIOD", "0") // as bench does
	prefix := netip.MustParsePrefix("10.8.0.0/24")
	const taken, more = 100, 40
	for name, open := range peers() {
		t.Run(name, func(t *testing.T) {
			s, err := open(t.Context(), t.TempDir(), prefix, taken)
			if err != nil {
				t.Fatal(err)
			}
			f := &filled{store: s, prefix: prefix, taken: taken}
			defer func() {
				if err := f.close(); err != nil {
					t.Error(err)
				}
			}()
			held := make(map[netip.Addr]string)
			for range more {
				sandbox, addr, took, err := f.give(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				if held[addr] != "" || took <= 0 {
					t.Fatalf("%s was given to %s and %s, in %v", addr, held[addr], sandbox, took)
				}
				held[addr] = sandbox
			}
			for addr, sandbox := range held {
				if err := f.release(t.Context(), sandbox, addr); err != nil {
					t.Fatal(err)
				}
			}
			const calls = 200 // more than are free: each is undone
			if a, err := f.repeat(t.Context(), calls, time.Hour); err != nil || len(a.Took) != calls {
				t.Fatalf("%d calls: %v", len(a.Took), err)
			}
			if g := f.grow(t.Context(), 4, load{least: 12}); g.Calls != 12 || g.Failed != 0 {
				t.Errorf("growing: %+v", g)
			}
			if c := f.crowd(t.Context(), 4, load{least: 12}); c.Calls+c.Failed < 12 || c.Calls == 0 {
				t.Errorf("a crowd: %+v", c)
			}
		})
	}
}

func TestTakenAddresses(t *testing.T) {
	f := &filled{prefix: netip.MustParsePrefix("10.8.0.0/16"), taken: 300}
	taken := takenOf(f.prefix, f.taken)
	if len(taken) != 300 || taken[0] != netip.MustParseAddr("10.8.0.2") || taken[299] != netip.MustParseAddr("10.8.1.45") {
		t.Errorf("%d taken: %v", len(taken), taken)
	}
	for addr, want := range map[string]bool{"10.8.0.1": false, "10.8.0.2": true, "10.8.1.45": true, "10.8.1.46": false, "10.7.255.255": false} {
		if f.isTaken(netip.MustParseAddr(addr)) != want {
			t.Errorf("%s is taken: %v", addr, !want)
		}
	}
	if all := takenOf(netip.MustParsePrefix("10.8.0.0/30"), 9); len(all) != 2 {
		t.Errorf("more is taken than there is: %v", all)
	}
}

// A session goes on after a request that it refuses.
func TestRequests(t *testing.T) {
	in := strings.NewReader(`{"do":"allocate","store":"a"}
{"do":"open","store":"a","prefix":"10.8.0.0/24","taken":3}
{"do":"dance","store":"a"}
{"do":"allocate","store":"a","calls":2,"most":60000000000}
`)
	var out strings.Builder
	if err := run(t.Context(), []string{"docker", t.TempDir()}, in, &out); err != nil {
		t.Fatal(err)
	}
	var told []string
	for line := range strings.Lines(out.String()) {
		var a answer
		if err := json.Unmarshal([]byte(line), &a); err != nil {
			t.Fatal(err)
		}
		told = append(told, a.Error+strconv.Itoa(len(a.Took)))
	}
	if got := strings.Join(told, "; "); got != `no store "a" is open0; 0; cannot "dance"0; 2` {
		t.Errorf("told %s", got)
	}
	if err := run(t.Context(), []string{"nobody", t.TempDir()}, in, &out); err == nil {
		t.Error("a peer that nobody knows was asked")
	}
}

func TestLoads(t *testing.T) {
	for _, c := range []struct {
		load
		most int
	}{
		{load{least: 3}, 3},
		{load{least: 3, limit: 1}, 3},
		{load{least: 1, limit: 7, long: time.Hour}, 7},
		{load{limit: 2}, 0},
	} {
		n := 0
		for range c.begin() {
			n++
		}
		if n != c.most {
			t.Errorf("%+v: %d rounds", c.load, n)
		}
	}
}
