package storm_test

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"strings"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/client"
)

// The sets of ipamd's table that give something to a port, as its documents name them.
// They are read by nft here, and by no code of ipamd's.
var givenByPort = []string{"leased", "macs", "ipv4", "ipv6", "anymac", "ipv4_anymac", "ipv6_anymac", "prefixes4", "prefixes6"}

// rules are the elements of each set of ipamd's table, their parts joined by a blank, the
// port first. Without the table they are nil.
type rules map[string][]string

// of are what a port has, in order, each behind the name of its set.
func (r rules) of(port string) (all []string) {
	for _, set := range givenByPort {
		for _, e := range r[set] {
			if name, _, _ := strings.Cut(e, " "); name == port {
				all = append(all, set+" "+e)
			}
		}
	}
	slices.Sort(all)
	return all
}

// nft runs nft in the runner's namespace.
func (w *world) nft(args ...string) ([]byte, error) {
	out, err := exec.CommandContext(w.ctx, "nsenter", append([]string{"--net=" + w.ns.Path(), "nft"}, args...)...).Output()
	if failed, is := err.(*exec.ExitError); is {
		err = fmt.Errorf("nft %s: %w: %s", strings.Join(args, " "), err, failed.Stderr)
	}
	return out, err
}

// rules reads the kernel's table. One whose base chain is not there is none.
func (w *world) rules() (rules, error) {
	tables, err := w.nft("list", "tables", "bridge")
	if err != nil || !strings.Contains(string(tables), "table bridge ipamd\n") {
		return nil, err
	}
	out, err := w.nft("-j", "list", "table", "bridge", "ipamd")
	if err != nil {
		return nil, err
	}
	return readRules(out)
}

func readRules(text []byte) (rules, error) {
	var list struct {
		Nftables []struct {
			Chain struct{ Hook string }
			Set   struct {
				Name string
				Elem []json.RawMessage
			}
		}
	}
	if err := json.Unmarshal(text, &list); err != nil {
		return nil, err
	}
	r, hooked := rules{}, false
	for _, one := range list.Nftables {
		hooked = hooked || one.Chain.Hook == "prerouting"
		if !slices.Contains(givenByPort, one.Set.Name) {
			continue
		}
		for _, raw := range one.Set.Elem {
			var parts struct{ Concat []json.RawMessage }
			if json.Unmarshal(raw, &parts) != nil || parts.Concat == nil {
				parts.Concat = []json.RawMessage{raw}
			}
			var key []string
			for _, p := range parts.Concat {
				key = append(key, strings.Trim(string(p), `"`))
			}
			r[one.Set.Name] = append(r[one.Set.Name], strings.Join(key, " "))
		}
	}
	if !hooked {
		return nil, nil
	}
	return r, nil
}

// due is what the port of a life has to have, and nothing else: its lease's.
func due(l *life) (port string, all []string) {
	n, mac := l.port()
	port = fmt.Sprint("port", n)
	all = []string{"leased " + port, fmt.Sprint("macs ", port, " ", mac), fmt.Sprint("ipv4 ", port, " ", mac, " ", l.addr), fmt.Sprint("ipv6 ", port, " ", mac, " ", linkLocal(mac))}
	slices.Sort(all)
	return port, all
}

// A reading is the kernel's rules between two moments, and the leases that were cooling
// before and after it.
type reading struct {
	from, to moment
	has      rules
	cooling  map[string]string // address by lease
}

// readRules reads the rules between two lists of the book, if ipamd answers.
func (w *world) readRules() {
	before, err := w.cooling()
	if err != nil {
		return
	}
	one := reading{from: w.rec.now(), cooling: map[string]string{}}
	if one.has, err = w.rules(); err != nil {
		w.rec.strange("read the rules: %v", err)
		return
	}
	one.to = w.rec.now()
	after, err := w.cooling()
	if err != nil {
		return
	}
	for lease, addr := range before {
		if after[lease] == addr {
			one.cooling[lease] = addr
		}
	}
	w.rec.add(func(h *history) { h.readings = append(h.readings, one) })
	w.rec.counted("rules read")
}

func (w *world) cooling() (map[string]string, error) {
	list, err := w.client.Leases(w.ctx, client.LeaseFilter{State: string(api.Cooling)})
	if err != nil {
		return nil, err
	}
	out := map[string]string{}
	for _, l := range list.Leases {
		out[l.ID] = l.Address
	}
	return out, nil
}

// rulesAreTheBooks waits until the kernel has what those who live must have, and nothing
// else for any port.
func (w *world) rulesAreTheBooks() {
	w.t.Helper()
	differ := ""
	defer func() {
		if w.t.Failed() {
			w.t.Logf("the rules differ: %s", differ)
		}
	}()
	w.eventually("the rules are what those who live must have", func() bool {
		has, err := w.rules()
		if has == nil || err != nil {
			differ = fmt.Sprint("no table, ", err)
			return false
		}
		differ = ""
		sum := 0
		for _, l := range w.rec.living() {
			port, want := due(&l)
			sum += len(want)
			if got := has.of(port); !slices.Equal(got, want) {
				differ += fmt.Sprintf("\n  %s has %q, and should have %q", port, got, want)
			}
		}
		for _, set := range givenByPort {
			sum -= len(has[set])
		}
		if sum != 0 {
			differ += fmt.Sprintf("\n  %d elements are missing (negative: too many)", sum)
		}
		return differ == ""
	})
}

const (
	flushed        = "rules flushed"
	elementDeleted = "element of the rules deleted"
)

// flush takes away all rules, as an operator's script does, and waits for ipamd's.
func (b *faults) flush() {
	b.t.Helper()
	g := b.flushRules()
	b.areBack(g)
}

// flushRules leaves the kernel without rules, as a boot does, too.
func (b *faults) flushRules() *gap {
	b.t.Helper()
	g := b.rec.opens("")
	if _, err := b.nft("flush", "ruleset"); err != nil {
		b.rec.strange("%v", err)
	}
	b.rec.counted(flushed)
	return g
}

func (b *faults) areBack(g *gap) {
	b.t.Helper()
	b.eventually("the rules are back", func() bool { r, err := b.rules(); return err == nil && r != nil })
	b.rec.closes(g)
}

// element takes one element from a port that has a lease, and waits until it is back, or the
// lease is gone.
func (b *faults) element() {
	b.t.Helper()
	var has rules
	b.eventually("there are rules of a lease", func() bool {
		var err error
		has, err = b.rules()
		return err == nil && len(has["ipv4"]) > 0
	})
	set := []string{"leased", "macs", "ipv4"}[b.r.IntN(3)]
	if len(has[set]) == 0 {
		b.rec.strange("the set %s is empty, and ipv4 is not", set)
		return
	}
	one := has[set][b.r.IntN(len(has[set]))]
	parts := strings.Split(one, " ")
	port := parts[0]
	if _, err := strconv.Atoi(port); err != nil { // a number is that of a link that has gone
		parts[0] = strconv.Quote(port)
	}
	g := b.rec.opens(port)
	defer b.rec.closes(g)
	if _, err := b.nft("delete", "element", "bridge", "ipamd", set, "{", strings.Join(parts, " . "), "}"); err != nil {
		return // its lease was faster
	}
	b.rec.counted(elementDeleted)
	b.eventually(fmt.Sprintf("%s { %s } is back, or its lease is gone", set, one), func() bool {
		r, err := b.rules()
		if err != nil || r == nil {
			return false
		}
		others := slices.DeleteFunc(r.of(port), func(e string) bool {
			return !slices.Contains([]string{"leased", "macs", "ipv4"}, strings.Split(e, " ")[0])
		})
		return slices.Contains(r[set], one) || len(others) == 0
	})
}
