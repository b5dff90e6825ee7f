package bridge

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/internal/nstest"
	"github.com/ipamd/ipamd/internal/realtest"
)

// sentences says what is plugged, in the order of the ports' names.
func sentences(plugged []census.Plugged) (out []string) {
	for _, p := range plugged {
		out = append(out, p.String())
	}
	slices.Sort(out)
	return out
}

// wantPlugged compares what is plugged.
func (v *view) wantPlugged(when, hostInterface, netns string, want ...string) {
	v.t.Helper()
	plugged, err := v.Plugged(context.Background(), hostInterface, time.Time{}, netns, 0)
	got := sentences(plugged)
	if err != nil || !slices.Equal(got, want) {
		v.t.Errorf("%s: plugged is %q, %v; want %q", when, got, err, want)
	}
}

// A port is found by a name that it had while the bridge was watched; by one
// that another link has by now, both are.
func TestPluggedByAFormerName(t *testing.T) {
	t.Parallel()
	ns := nstest.New(t)
	ns.Bridge("rt0", "10.8.0.1/24")
	ns.Port("rt0")
	v := open(t, ns)
	rename := func(from, to string) {
		ns.Exec("ip", "link", "set", from, "down")
		ns.Exec("ip", "link", "set", from, "name", to)
		ns.Exec("ip", "link", "set", to, "up")
	}
	rename("veth1", "mine")
	v.wantPlugged("renamed", "veth1", "", "mine, which was veth1, is a port of rt0")
	rename("mine", "yours")
	v.wantPlugged("again", "veth1", "", "yours, which was veth1, is a port of rt0")
	ns.Exec("ip", "link", "add", "veth1", "type", "veth", "peer", "name", "far")
	ns.Exec("ip", "link", "set", "veth1", "master", "rt0")
	v.wantPlugged("and the name is another's", "veth1", "", "veth1 is a port of rt0", "yours, which was veth1, is a port of rt0")
	ns.Exec("ip", "link", "del", "veth1")
	if names := v.PortNames(); len(names) != 1 || !names["yours"] {
		v.settle()
		if names = v.PortNames(); len(names) != 1 || !names["yours"] {
			t.Errorf("the ports are %v", names)
		}
	}
	ns.Exec("ip", "link", "del", "yours")
	v.wantPlugged("it left", "veth1", "")
}

// A former name is a port's to that knew it by then, and to no caller that came to know
// it later: the name is another link's by then.
func TestF11AFormerNameIsBoundInTime(t *testing.T) {
	t.Parallel()
	ns := nstest.New(t)
	ns.Bridge("rt0", "10.8.0.1/24")
	ns.Port("rt0")
	v := open(t, ns)
	early := time.Now()
	ns.Exec("ip", "link", "set", "veth1", "down")
	ns.Exec("ip", "link", "set", "veth1", "name", "mine")
	v.settle()
	late := time.Now()
	want := func(when string, since time.Time, want ...string) {
		t.Helper()
		plugged, err := v.Plugged(context.Background(), "veth1", since, "", 0)
		got := sentences(plugged)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: plugged is %q, %v; want %q", when, got, err, want)
		}
	}
	want("known before", early, "mine, which was veth1, is a port of rt0")
	want("known since ever", time.Time{}, "mine, which was veth1, is a port of rt0")
	want("known since then", late)
	ns.Exec("ip", "link", "add", "veth1", "type", "veth", "peer", "name", "far")
	ns.Exec("ip", "link", "set", "veth1", "master", "rt0")
	want("the next one's, known before", early, "mine, which was veth1, is a port of rt0", "veth1 is a port of rt0")
	want("the next one's", late, "veth1 is a port of rt0")
	ns.Exec("ip", "link", "del", "veth1")
	want("the next one's, and it left", late)
}

// What of a lease's plumbing is still a port, by its name or by where it
// leads, is as it is now.
func TestPlugged(t *testing.T) {
	t.Parallel()
	ns := nstest.New(t)
	ns.Bridge("rt0", "10.8.0.1/24")
	a, other := ns.Port("rt0"), ns.Port("rt0")
	ns.Bridge("rt1")
	elsewhere := ns.Port("rt1")
	v := open(t, ns)
	path := a.NS.Path()

	v.wantPlugged("both recorded, one port", a.HostName, path, "veth1 is a port of rt0")
	v.wantPlugged("the name alone", a.HostName, "", "veth1 is a port of rt0")
	v.wantPlugged("the namespace alone", "", path, "veth1 is a port of rt0 and leads into "+path)
	v.wantPlugged("two ports", other.HostName, path, "veth1 is a port of rt0 and leads into "+path, "veth2 is a port of rt0")
	v.wantPlugged("nothing recorded", "", "")
	v.wantPlugged("a port of another bridge", elsewhere.HostName, elsewhere.NS.Path())
	v.wantPlugged("no such link, no such path", "veth99", "/run/netns/no-such-thing")
	v.wantPlugged("a name that no link can have", strings.Repeat("v", 40), "")
	v.wantPlugged("the bridge's own namespace", "", ns.Path())
	v.wantPlugged("a namespace that no link leads to", "", nstest.New(t).Path())
	v.wantPlugged("a process that has ended", "", "/proc/4194999/ns/net")

	ns.Exec("ip", "link", "set", a.HostName, "down")
	ns.Exec("ip", "link", "set", a.HostName, "name", "mine")
	v.wantPlugged("renamed", a.HostName, path, "mine is a port of rt0 and leads into "+path)
	ns.Exec("ip", "link", "set", "mine", "nomaster")
	v.wantPlugged("unplugged", "mine", path)
	ns.Exec("ip", "link", "set", "mine", "master", "rt0")
	v.wantPlugged("plugged again, with nothing settled", "mine", path, "mine is a port of rt0")
	second := nstest.New(t)
	a.NS.Exec("ip", "link", "set", "eth0", "netns", second.Name())
	v.wantPlugged("the far end moved", "", path)
	v.wantPlugged("to where it moved", "", second.Path(), "mine is a port of rt0 and leads into "+second.Path())
}

// F21: a path that leads to another namespace than the recorded one by now leads nowhere, in memory and for the kernel alike; one
// whose namespace is not known leads where it leads.
func TestF21PluggedByAPathThatIsUsedAgain(t *testing.T) {
	t.Parallel()
	ns := nstest.New(t)
	ns.Bridge("rt0", "10.8.0.1/24")
	p, other := ns.Port("rt0"), ns.Port("rt0")
	v := open(t, ns)
	path, own, another := p.NS.Path(), inode(t, p.NS.Path()), inode(t, other.NS.Path())
	leads := "veth1 is a port of rt0 and leads into " + path
	for _, tt := range []struct {
		when  string
		host  string
		inode uint64
		want  []string
	}{
		{"its own", "", own, []string{leads}},
		{"another's", "", another, nil},
		{"not known", "", 0, []string{leads}},
		{"another's, and its link is there", "veth1", another, []string{"veth1 is a port of rt0"}},
	} {
		got, err := v.Plugged(t.Context(), tt.host, time.Time{}, path, tt.inode)
		if err != nil || !slices.Equal(sentences(got), tt.want) {
			t.Errorf("%s: plugged is %q, %v; want %q", tt.when, sentences(got), err, tt.want)
		}
	}
}

// A container runtime that could not remove the mount's file leaves it.
func TestPluggedByAPathThatIsNoNamespace(t *testing.T) {
	t.Parallel()
	ns := nstest.New(t)
	ns.Bridge("rt0")
	p := ns.Port("rt0")
	dir := t.TempDir()
	v := open(t, ns, func(c *Config) { c.NetnsFolders = []string{dir} })
	left := filepath.Join(dir, "ns")
	if err := os.WriteFile(left, nil, 0); err != nil {
		t.Fatal(err)
	}
	v.wantPlugged("a plain file", "", left)
	v.wantPlugged("a plain file, but the link is there", p.HostName, left, "veth1 is a port of rt0")
	below := filepath.Join(dir, "below")
	if err := os.Mkdir(below, 0o700); err != nil {
		t.Fatal(err)
	}
	v.wantPlugged("a directory", "", below)
}

// Without the bridge nothing is known: its ports may carry on under another
// name of it.
func TestPluggedWithoutTheBridge(t *testing.T) {
	t.Parallel()
	ns := nstest.New(t)
	ns.Bridge("rt0")
	p := ns.Port("rt0")
	v := open(t, ns)
	unknown := func(why string) {
		t.Helper()
		for _, c := range [][2]string{{p.HostName, ""}, {"", p.NS.Path()}, {"veth99", ""}} {
			if got, err := v.Plugged(context.Background(), c[0], time.Time{}, c[1], 0); err == nil || !strings.Contains(err.Error(), why) {
				t.Errorf("%q: %q, %v; want an error that says %q", c, got, err, why)
			}
		}
		v.wantPlugged("nothing recorded", "", "")
	}
	ns.Exec("ip", "link", "set", "rt0", "down")
	ns.Exec("ip", "link", "set", "rt0", "name", "rt9")
	unknown("rt0 is missing")
	ns.Exec("ip", "tuntap", "add", "dev", "rt0", "mode", "tap")
	unknown("rt0 is not a bridge")
	ns.Exec("ip", "link", "del", "rt0")
	ns.Exec("ip", "link", "set", "rt9", "name", "rt0")
	v.wantPlugged("named back", p.HostName, "", "veth1 is a port of rt0")

	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := v.Plugged(ctx, p.HostName, time.Time{}, "", 0); !errors.Is(err, context.Canceled) {
		t.Errorf("after the end: %v", err)
	}
	v.Close()
	unknown(ErrClosed.Error())
}

// A port that leaves changes the board, and wakes also those who wait for one
// behind which nothing was seen.
func TestPortsThatMoveAreReported(t *testing.T) {
	t.Parallel()
	ns := nstest.New(t)
	ns.Bridge("rt0", "10.8.0.1/24")
	p := ns.Port("rt0", "10.8.0.7/24")
	v := open(t, ns, func(c *Config) { c.Every = time.Hour })
	v.run(t)

	board, ports := v.board.Changed(), v.Changed()
	ns.Exec("ip", "link", "set", p.HostName, "nomaster")
	for what, changed := range map[string]<-chan struct{}{"the board's change": board, "the ports' change": ports} {
		await(t, what, changed)
	}
	realtest.Eventually(t, wait, "its end", func() bool { return !v.seen("10.8.0.7") })

	for _, step := range [][]string{
		{"ip", "tuntap", "add", "dev", "tap0", "mode", "tap"},
		{"ip", "link", "set", "tap0", "master", "rt0"},
		{"ip", "link", "set", "tap0", "name", "tap1"},
		{"ip", "link", "set", "tap1", "nomaster"},
		{"ip", "link", "set", "tap1", "master", "rt0"},
		{"ip", "link", "del", "tap1"},
		{"ip", "link", "set", p.HostName, "master", "rt0"},
		{"ip", "link", "del", "rt0"},
	} {
		changed := v.Changed()
		ns.Exec(step...)
		if step[1] != "tuntap" {
			await(t, strings.Join(step, " "), changed)
		}
	}
}

// A whole reading that finds the bridge gone reports its ports, and one that
// finds nothing new reports nothing.
func TestChangedByARefresh(t *testing.T) {
	t.Parallel()
	ns := nstest.New(t)
	ns.Bridge("rt0", "10.8.0.1/24")
	ns.Port("rt0", "10.8.0.7/24")
	v := open(t, ns)
	v.settle()
	refresh := func() {
		t.Helper()
		if err := v.Refresh(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	var changed <-chan struct{}
	realtest.Eventually(t, wait, "the kernel to give the bridge the link-local address that it is slow with", func() bool {
		own := v.Own()
		changed = v.Changed()
		refresh()
		select {
		case <-changed:
			if reflect.DeepEqual(v.Own(), own) {
				t.Fatal("nothing moved, yet it was reported")
			}
			return false
		default:
			return true
		}
	})
	ns.Exec("ip", "link", "del", "rt0")
	refresh()
	await(t, "the bridge's end", changed)
}

func await(t *testing.T, what string, changed <-chan struct{}) {
	t.Helper()
	select {
	case <-changed:
	case <-time.After(wait):
		t.Errorf("%s was not reported", what)
	}
}
