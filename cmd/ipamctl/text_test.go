package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
	"unicode"

	"go.yaml.in/yaml/v3"

	"github.com/ipamd/ipamd/api"
)

// Names come from the caller that asked for a sandbox. Whatever they hold, nothing
// that ipamctl writes in any form may contain a rune that a terminal obeys,
// and programs still read the very same name.
func TestNamesCannotInject(t *testing.T) {
	nasty := []string{
		"\x1b[2J\x1b[H", "a\nrelease everything", "a\tb", "\r10.8.64.2 is free", "\u009b31m", "\x7f\x08\x08", "\u202egnp.exe",
		"\u2028line", "zero\u200bwidth", `"quoted"`, "", " padded ", "\U000e0001tag", "a\x00b", "\ufeffbom", "\uffff",
	}
	for _, name := range nasty {
		w := runner()
		l := &w.leases[0]
		l.Sandbox, l.UID, l.Interface, l.Netns, l.Reason, l.HostInterface, l.MAC = name, name, name, name, name, name, name
		l.Labels = map[string]string{name: name}
		l.Containers = []api.Container{{Namespace: name, ID: name}}
		l.Evidence = []api.Sighting{{Witness: name, Port: name, Netns: name, Sandbox: name, Container: name, Namespace: name, Note: name, Task: name}}
		l.Pool = name
		w.pools[0].Name, w.pools[0].Bridge, w.pools[0].State = name, name, api.PoolState(name)
		who := w.whois["10.8.64.2"]
		who.Lease, who.Owner, who.Pool = l, name, "default"
		who.Witnesses = append(who.Witnesses, api.WitnessAnswer{Witness: name, Answer: name, Reason: name, Seen: l.Evidence})
		w.whois["10.8.64.2"] = who
		for i := range w.changes {
			ch := &w.changes[i]
			ch.Sandbox, ch.Reason, ch.Peer, ch.Actor, ch.From = name, name, name, name, api.State(name)
		}
		w.findings = []api.Finding{{Kind: name, Detail: name, Repair: name, LeaseID: name}}
		w.status.Bridge.Name, w.status.Version, w.status.NotReady, w.status.Ready = name, name, []string{name}, false
		w.status.Silent = []api.Silence{{Witness: name, Reason: name}}
		w.blockers, l.State = []api.Blocker{{Kind: name, Detail: name}}, api.Releasing
		w.pass = api.Report{Silent: w.status.Silent, Held: &api.Held{Releases: 9, Most: 5, Reason: name}, Reports: w.findings,
			Actions: []api.Action{{Kind: name, Address: name, Sandbox: name, Reason: name, Result: name}, {Result: "done", Error: name}}}
		w.allocate.Leases[0].Sandbox = name
		w.allocate.Skipped = []api.Skipped{{Address: name, Evidence: l.Evidence}}
		w.allocate.Unprobed = []string{name}
		w.serve(t)
		for _, line := range everyVerb() {
			for _, form := range []string{"", "-o json", "-o yaml", "-q"} {
				s := &screen{}
				w.ctl(t, s, words(line+" "+form)...)
				for _, output := range []string{s.out.String(), s.err.String()} {
					if i := strings.IndexFunc(output, obeyed); i >= 0 {
						t.Errorf("%q reaches the terminal by %s %s: %q", name, line, form, output[max(0, i-20):min(len(output), i+20)])
					}
				}
				if s.out.Len() == 0 || !strings.HasPrefix(line, "show 0197") {
					continue
				}
				var list api.LeaseList
				switch form {
				case "-o json":
					if err := json.Unmarshal(s.out.Bytes(), &list); err != nil || list.Leases[0].Sandbox != name {
						t.Errorf("JSON changed %q: %v %+v", name, err, list.Leases)
					}
				case "-o yaml":
					var doc map[string]any
					if err := yaml.Unmarshal(s.out.Bytes(), &doc); err != nil {
						t.Errorf("YAML of %q: %v\n%s", name, err, s.out.String())
						continue
					}
					back, err := json.Marshal(doc)
					if err == nil {
						err = json.Unmarshal(back, &list)
					}
					if err != nil || list.Leases[0].Sandbox != name {
						t.Errorf("YAML changed %q: %v %+v", name, err, list.Leases)
					}
				}
			}
		}
	}
}

// obeyed reports a rune that a terminal acts on instead of showing it.
func obeyed(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }

func TestTimes(t *testing.T) {
	p := &page{now: func() time.Time { return noon }}
	for d, want := range map[time.Duration]string{
		0: "just now", 900 * time.Millisecond: "just now", 12 * time.Second: "12s ago", 192 * time.Second: "3m12s ago",
		5*time.Hour + 3*time.Minute: "5h3m ago", 47 * time.Hour: "47h0m ago", 98 * time.Hour: "4d2h ago", -90 * time.Second: "in 1m30s",
	} {
		if got := p.ago(before(d)); got != want {
			t.Errorf("%s: %q, want %q", d, got, want)
		}
	}
	if got := p.ago(time.Time{}); got != "-" {
		t.Errorf("no time: %q", got)
	}
}
