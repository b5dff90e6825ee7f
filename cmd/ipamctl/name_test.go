package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/internal/term"
)

// What names no lease by its id is refused before anything is changed, with the
// way on.
func TestLeasesAreNamedByTheirIDs(t *testing.T) {
	for _, c := range []struct{ line, says, hint string }{
		{"release web-1", "web-1 is a sandbox", "hint: to release all of its leases: ipamctl release --sandbox web-1"},
		{"pause web-1", "web-1 is a sandbox", "hint: its leases: ipamctl show web-1"},
		{"wake web-1", "web-1 is a sandbox", "hint: its leases: ipamctl show web-1"},
		{"bind 10.8.64.2", "10.8.64.2 is an address", "ipamctl whois 10.8.64.2"},
		{"show 10.8.64.2", "10.8.64.2 is an address", "ipamctl whois 10.8.64.2"},
		{"release 0197f2c0", "a part of the ids of 8 leases", "ipamctl leases -o wide"},
		{"history --lease 0197", "a part of the ids of 8 leases", "ipamctl leases -o wide"},
		{"cancel " + id(2) + " --attempt 3", id(2) + " is a lease", "ipamctl history --lease " + id(2)},
	} {
		w, s := runner().serve(t), &screen{}
		if code := w.ctl(t, s, words(c.line)...); code != exitUsage {
			t.Errorf("%s: exit %d", c.line, code)
		}
		if got := s.err.String(); !strings.Contains(got, c.says) || !strings.Contains(got, c.hint) {
			t.Errorf("%s says %s", c.line, got)
		}
		for _, a := range w.asked {
			if a.verb != string(api.VerbLeases) && a.verb != string(api.VerbLease) && a.verb != string(api.VerbHealth) {
				t.Errorf("%s asked for %s", c.line, a.verb)
			}
		}
	}
}

// The listing's ids are long enough to name one lease each, and are taken back.
func TestShortIDs(t *testing.T) {
	var leases []api.Lease
	for i := range 40 {
		l := lease(1, "10.8.64.2", api.Bound, "a", 0)
		l.ID = fmt.Sprintf("0197f2c0-5b7e-7c3a-9d41-%04x00000000", i)
		leases = append(leases, l)
	}
	short := shortIDs(leases)
	for i, s := range short {
		if found := withID(leases, s); len(found) != 1 || found[0].ID != leases[i].ID {
			t.Errorf("%s names %d leases", s, len(found))
		}
	}
	if len(short[0]) != 12 {
		t.Errorf("the ids are as short as %s", short[0])
	}
}

// --version asks no daemon.
func TestVersionFlag(t *testing.T) {
	s := &screen{}
	if code := (&world{}).ctl(t, s, "--version"); code != exitOK || s.out.String() != "ipamctl v0.1.0 cafe\n" {
		t.Errorf("exit %d: %s", code, s.out.String())
	}
}

// Several leases are released one after the other, and one that is refused does
// not keep the next.
func TestReleaseOfSeveral(t *testing.T) {
	w, s := runner().serve(t), &screen{}
	gone := "0197f2c0-5b7e-7c3a-9d41-ffffffffffff"
	code := w.ctl(t, s, "release", id(2), gone, id(3), "-o", "json")
	var got releasedList
	if err := json.Unmarshal(s.out.Bytes(), &got); err != nil || len(got.Leases) != 2 || got.Leases[1].Lease.ID != id(3) {
		t.Errorf("%v in %s", err, s.out.String())
	}
	if code != exitGone || !strings.Contains(s.err.String(), "lease_gone") {
		t.Errorf("exit %d: %s", code, s.err.String())
	}
	w, s = runner().serve(t), &screen{}
	if code := w.ctl(t, s, "release", "--sandbox", "web-1", "-q"); code != exitOK || s.out.String() != id(2)+"\n"+id(11)+"\n" {
		t.Errorf("exit %d, released %q", code, s.out.String())
	}
	if code := w.ctl(t, s, "release", "--sandbox", "nobody"); code != exitGone {
		t.Errorf("a sandbox without leases: exit %d", code)
	}
}

// The listing fits 80 columns whatever names are in it, and -o wide has all.
func TestLeasesFit(t *testing.T) {
	w := runner()
	w.leases = slices.DeleteFunc(w.leases, func(l api.Lease) bool { return strings.HasPrefix(l.Address, "fd") })
	w.leases[0].Sandbox = strings.Repeat("a-very-long-name-", 5)
	w.serve(t)
	s := &screen{terminal: true, columns: 80, env: map[string]string{"NO_COLOR": "1"}}
	w.ctl(t, s, "leases")
	lines := strings.Split(s.out.String(), "\n")
	if !strings.HasPrefix(lines[0], "ADDRESS") || strings.Contains(lines[0], "POOL") || len(lines) != 9 {
		t.Errorf("the listing is\n%s", s.out.String())
	}
	for _, line := range lines {
		if term.Width(line) > 80 {
			t.Errorf("%d columns: %s", term.Width(line), line)
		}
	}
	s = &screen{}
	w.ctl(t, s, "leases", "-o", "wide")
	for _, want := range []string{"POOL", "INTERFACE", "UID", "PORT", "TRAFFIC", id(2), strings.Repeat("a-very-long-name-", 5)} {
		if !strings.Contains(s.out.String(), want) {
			t.Errorf("wide has no %s:\n%s", want, s.out.String())
		}
	}
}

func TestLeasesAreSelectedAndSorted(t *testing.T) {
	w := runner()
	for i := range w.leases {
		w.leases[i].Labels = map[string]string{"n": fmt.Sprint(i % 2)}
	}
	w.serve(t)
	for _, c := range []struct {
		line string
		want []int
	}{
		{"leases -q --label n=1", []int{3, 5, 7, 11}},
		{"leases -q --label n --label n=0", []int{2, 4, 6, 10}},
		{"leases -q --label m", nil},
		{"leases -q --label n=1 --sort since", []int{11, 7, 5, 3}},
		{"leases -q --label n=0 --sort sandbox", []int{10, 6, 4, 2}},
		{"leases -q --label n=1 --sort state", []int{3, 11, 5, 7}},
	} {
		s := &screen{}
		w.ctl(t, s, words(c.line)...)
		want := ""
		for _, n := range c.want {
			want += id(n) + "\n"
		}
		if got := s.out.String(); got != want {
			t.Errorf("%s: %s want %s", c.line, got, want)
		}
	}
}
