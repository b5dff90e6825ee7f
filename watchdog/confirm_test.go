package watchdog

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/ipam"
)

var c1, c2 = Container{Namespace: "default", ID: "c1"}, Container{Namespace: "default", ID: "c2"}

// kinds writes obstacles as one line: "container port".
func kinds(found []obstacle) string {
	var out []string
	for _, o := range found {
		out = append(out, o.Kind)
	}
	return strings.Join(out, " ")
}

// Confirmed is the one line in which all were asked and nothing is left;
// every other line names what stands in the way.
func TestConfirmed(t *testing.T) {
	addr := netip.MustParseAddr("10.8.64.2")
	lease := func() *ipam.Lease {
		return &ipam.Lease{Addr: addr, ID: "L", State: ipam.Releasing, Containers: []ipam.Container{ipam.Container(c1)}}
	}
	// all asked, nothing there
	asked := func() facts {
		return facts{runtime: true, looks: map[Container]lookedUp{c1: {}}, ports: true, listed: true, wire: &census.Answer{Addr: addr}}
	}
	for name, tt := range map[string]struct {
		change func(*ipam.Lease, *facts)
		want   string
		says   string // in the first
	}{
		"all were asked, nothing is left":     {func(*ipam.Lease, *facts) {}, "", ""},
		"none was asked":                      {func(_ *ipam.Lease, f *facts) { *f = facts{runtime: true} }, "runtime runtime port silent", "c1 was not asked"},
		"none was asked, no runtime":          {func(_ *ipam.Lease, f *facts) { *f = facts{} }, "runtime port silent", "no runtime is configured"},
		"no runtime, and containers recorded": {func(_ *ipam.Lease, f *facts) { f.runtime = false }, "runtime", "records 1 containers"},
		"no runtime, and no containers":       {func(l *ipam.Lease, f *facts) { l.Containers, f.runtime, f.looks, f.listed = nil, false, nil, false }, "", ""},
		"a record": {func(_ *ipam.Lease, f *facts) {
			f.looks[c1] = lookedUp{Look: Look{Found: true}}
			f.seen = []census.Sighting{{Witness: census.Runtime, Namespace: "default", Container: "c1", Task: "stopped"}}
		}, "container", "container default/c1 is there (task stopped)"},
		"a task without a record":            {func(_ *ipam.Lease, f *facts) { f.looks[c1] = lookedUp{Look: Look{Task: "running"}} }, "task", "default/c1 has no record any more, but a task (running)"},
		"a task that cannot be asked":        {func(_ *ipam.Lease, f *facts) { f.looks[c1] = lookedUp{err: errBroken} }, "runtime", errBroken.Error()},
		"an answer with an error counts not": {func(_ *ipam.Lease, f *facts) { f.looks[c1] = lookedUp{Look{Found: true}, errBroken} }, "runtime", "could not be asked"},
		"the second container was not asked": {func(l *ipam.Lease, _ *facts) { l.Containers = append(l.Containers, ipam.Container(c2)) }, "runtime", "default/c2 was not asked"},
		"one that was met and not recorded":  {func(_ *ipam.Lease, f *facts) { f.looks[c2] = lookedUp{Look: Look{Found: true}} }, "container", "default/c2"},
		"one that only the list shows":       {func(_ *ipam.Lease, f *facts) { f.list = []Container{c2} }, "container", "default/c2 is there"},
		"found by both ways, reported once": {func(_ *ipam.Lease, f *facts) {
			f.looks[c1] = lookedUp{Look: Look{Found: true}}
			f.list = []Container{c1}
		}, "container", "default/c1"},
		"no list":                   {func(_ *ipam.Lease, f *facts) { f.listed, f.listErr = false, errBroken }, "runtime", "could not be listed"},
		"a port":                    {func(_ *ipam.Lease, f *facts) { f.plugged = []census.Plugged{{Port: "veth1", Bridge: "rt0"}} }, "port", "veth1 is a port of rt0"},
		"ports that cannot be read": {func(_ *ipam.Lease, f *facts) { f.portErr = errBroken }, "port", "could not be read"},
		"news that cannot be read":  {func(_ *ipam.Lease, f *facts) { f.newsErr = errBroken }, "silent", "news"},
		"seen on the wire": {func(_ *ipam.Lease, f *facts) {
			f.wire.Seen = []census.Sighting{{Addr: addr, Witness: census.Netns, Netns: census.NewNetnsID(7, ""), Port: "veth1"}}
		}, "sighting", "the netns witness sees 10.8.64.2 in nsid:7 behind port veth1"},
		"a silent witness": {func(_ *ipam.Lease, f *facts) {
			f.wire.Silent = []census.Silence{{Witness: census.Host, Reason: "closed"}}
		}, "silent", "the host witness cannot answer: closed"},
		"everything at once, what is to be done first comes first": {func(_ *ipam.Lease, f *facts) {
			f.looks[c1] = lookedUp{Look: Look{Found: true}}
			f.plugged = []census.Plugged{{Port: "veth1", Bridge: "rt0"}}
			f.wire.Seen = []census.Sighting{{Addr: addr, Witness: census.Netns}}
		}, "container port sighting", "c1"},
	} {
		t.Run(name, func(t *testing.T) {
			l, f := lease(), asked()
			tt.change(l, &f)
			found := obstacles(l, f, true)
			if kinds(found) != tt.want {
				t.Fatalf("blocked by %q, want %q: %+v", kinds(found), tt.want, found)
			}
			if len(found) > 0 && !strings.Contains(found[0].Detail, tt.says) {
				t.Errorf("the first says %q, want %q in it", found[0].Detail, tt.says)
			}
		})
	}
}

// Only a plain "gone" of the owner lets a sandbox go.
func TestOwnerKeeps(t *testing.T) {
	for _, tt := range []struct {
		v      Verdict
		err    error
		blocks bool
	}{
		{Gone, nil, false}, {Valid, nil, true}, {Unknown, nil, true}, {Verdict(9), nil, true},
		{Gone, errBroken, true}, {Unknown, errBroken, true},
	} {
		if got := ofOwner("a", tt.v, tt.err); (len(got) > 0) != tt.blocks {
			t.Errorf("verdict %v, error %v: %+v, want a blocker: %v", tt.v, tt.err, got, tt.blocks)
		}
	}
}

// When a released address is quarantined instead.
func TestSetAside(t *testing.T) {
	sighting, silent, port := obstacle{Blocker: Blocker{Kind: KindSighting}}, obstacle{Blocker: Blocker{Kind: KindSilent}}, obstacle{Blocker: Blocker{Kind: KindPort}}
	other := []census.Sighting{{Witness: census.Runtime, Sandbox: "b"}}
	onWire := []census.Sighting{{Witness: census.Netns, MAC: "02:00:00:00:00:09"}}
	for name, tt := range map[string]struct {
		found     []obstacle
		strangers []census.Sighting
		waited    time.Duration
		want      string
	}{
		"seen, and not for long":              {[]obstacle{sighting}, nil, time.Hour - 1, ""},
		"seen for the longest wait":           {[]obstacle{sighting}, nil, time.Hour, ReasonStill},
		"seen, and a witness silent":          {[]obstacle{sighting, silent}, nil, time.Hour, ReasonStill},
		"only silent":                         {[]obstacle{silent}, nil, 9 * time.Hour, ""},
		"its own port is still there":         {[]obstacle{port, sighting}, nil, 9 * time.Hour, ""},
		"a container of another claims it":    {[]obstacle{sighting}, other, 0, ReasonClaimed},
		"the same, and its own port is there": {[]obstacle{port, sighting}, other, 9 * time.Hour, ""},
		"a stranger on the wire alone waits":  {[]obstacle{sighting}, onWire, 0, ""},
	} {
		if got := quarantineReason(tt.found, tt.strangers, false, tt.waited, time.Hour); got != tt.want {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
	for name, tt := range map[string]struct {
		found []obstacle
		want  string
	}{
		"nothing but claims":          {[]obstacle{sighting}, ReasonClaimed},
		"its own port is still there": {[]obstacle{port, sighting}, ""},
		"a claim that went":           {nil, ""},
	} {
		if got := quarantineReason(tt.found, onWire, true, 0, time.Hour); got != tt.want {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}

// What can be used can be asked for nothing less than everything.
func TestNewRefuses(t *testing.T) {
	for name, change := range map[string]func(*Config){
		"no book": func(c *Config) { c.Book = nil }, "no board": func(c *Config) { c.Board = nil },
		"no ports": func(c *Config) { c.Kernel = nil }, "no changes of ports": func(c *Config) { c.PortsChanged = nil },
		"no news":  func(c *Config) { c.Settle = nil },
		"no clock": func(c *Config) { c.Now = nil }, "no longest release": func(c *Config) { c.ReleasingMax = 0 },
		"no timeout": func(c *Config) { c.Timeout = 0 }, "no room": func(c *Config) { c.Parallel = 0 },
	} {
		w, _, _ := newWatchdog(t)
		cfg := w.cfg
		change(&cfg)
		if _, err := New(cfg); err == nil || !strings.HasPrefix(err.Error(), "configure the watchdog: ") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Without a runtime a lease with containers is never said to be gone.
func TestGoneWithoutARuntime(t *testing.T) {
	w, _, _ := newWatchdog(t)
	if gone, err := w.Gone(ctx, &ipam.Lease{Containers: []ipam.Container{{Namespace: "default", ID: "c1"}}}, nil); gone || !errors.Is(err, errNoRuntime) {
		t.Errorf("gone: %v, %v", gone, err)
	}
	if gone, err := w.Gone(ctx, &ipam.Lease{}, nil); gone || err != nil {
		t.Errorf("a lease without containers is gone: %v, %v", gone, err)
	}
}
