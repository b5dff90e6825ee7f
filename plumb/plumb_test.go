package plumb

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ipamd/ipamd/internal/nstest"
	"github.com/ipamd/ipamd/internal/realtest"
)

// A victim makes a port, and is killed at one of its steps.
const victim, victimStep = "PLUMB_TEST_SPEC", "PLUMB_TEST_STEP"

func TestMain(m *testing.M) {
	text := os.Getenv(victim)
	if text == "" {
		os.Exit(m.Run())
	}
	var s Spec
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		panic(err)
	}
	left, err := strconv.Atoi(os.Getenv(victimStep))
	if err != nil {
		panic(err)
	}
	step = func(string) {
		if left--; left == 0 {
			_ = unix.Kill(os.Getpid(), unix.SIGKILL)
			select {} // not one step further
		}
	}
	if err = nil; !s.Tap {
		err = MakeNetns(s.Netns)
	}
	if err == nil {
		_, err = Make(context.Background(), s)
	}
	if err != nil {
		println(err.Error())
		os.Exit(1)
	}
	os.Exit(0)
}

// A world is a bridge and a namespace to plug into it.
type world struct {
	host, guest *nstest.NS
	spec        Spec
}

func newWorld(t *testing.T) *world {
	t.Helper()
	realtest.Root(t)
	w := &world{host: nstest.New(t), guest: nstest.New(t)}
	w.host.Bridge("rt0", "10.8.64.1/24", "fd08::1/64")
	w.spec = specOf(w.guest.Path())
	return w
}

func specOf(netns string) Spec {
	return Spec{
		Owner: "lease-1", Bridge: "rt0", Host: HostName("lease-1"), Netns: netns, Guest: "eth0", MTU: 1400,
		MAC:       net.HardwareAddr{2, 0, 0, 0, 0, 7},
		Addresses: []netip.Prefix{netip.MustParsePrefix("10.8.64.7/24"), netip.MustParsePrefix("fd08::7/64")},
		Routes: []Route{
			{To: netip.MustParsePrefix("0.0.0.0/0"), Via: netip.MustParseAddr("10.8.64.1")},
			{To: netip.MustParsePrefix("::/0"), Via: netip.MustParseAddr("fd08::1")},
			{To: netip.MustParsePrefix("10.9.0.0/16")},
		},
	}
}

func (w *world) make(t *testing.T, s Spec) (p Port, err error) {
	w.host.Do(func() { p, err = Make(t.Context(), s) })
	return p, err
}

func (w *world) whole(t *testing.T) {
	t.Helper()
	w.host.Do(func() {
		if diffs, err := Check(t.Context(), w.spec); err != nil || len(diffs) > 0 {
			t.Errorf("check: %v %v", diffs, err)
		}
	})
}

// answers has the bridge's side ask the sandbox for a service that it does not have.
func (w *world) answers(t *testing.T, address string) {
	t.Helper()
	w.host.Do(func() {
		c, err := net.DialTimeout("tcp", net.JoinHostPort(address, "9"), 20*time.Second)
		if err == nil {
			c.Close()
		}
		if !errors.Is(err, unix.ECONNREFUSED) {
			t.Errorf("%s does not answer: %v", address, err)
		}
	})
}

func (w *world) remove(t *testing.T) {
	t.Helper()
	w.host.Do(func() {
		if err := Remove(t.Context(), w.spec.Host, w.spec.Owner); err != nil {
			t.Error(err)
		}
	})
}

// links lists the links of a namespace but lo and the bridge.
func links(t *testing.T, n *nstest.NS) (names []string) {
	t.Helper()
	all, err := n.Netlink().LinkList()
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range all {
		if name := l.Attrs().Name; name != "lo" && name != "rt0" {
			names = append(names, name)
		}
	}
	return names
}

func (w *world) nothingLeft(t *testing.T) {
	t.Helper()
	if at, in := links(t, w.host), links(t, w.guest); len(at)+len(in) > 0 {
		t.Errorf("left: %v beside the bridge, %v in the namespace", at, in)
	}
}

func TestMakeIsWholeAndTwiceEqualsOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p, err := w.make(t, w.spec)
	if err != nil {
		t.Fatal(err)
	}
	w.whole(t)
	if p.Host != w.spec.Host || p.MAC.String() != w.spec.MAC.String() || p.Inode == 0 || p.HostIndex == 0 || p.Netns != w.spec.Netns {
		t.Errorf("made %+v", p)
	}
	w.answers(t, "10.8.64.7")
	w.answers(t, "fd08::7")
	if got := strings.TrimSpace(w.guest.Exec("cat", "/proc/sys/net/ipv4/conf/eth0/arp_notify")); got != "1" {
		t.Errorf("arp_notify is %s", got)
	}
	again, err := w.make(t, w.spec)
	if err != nil || again.HostIndex != p.HostIndex || again.MAC.String() != p.MAC.String() {
		t.Errorf("made again: %+v %v, first %+v", again, err, p)
	}

	// Whole state: what the spec says no more is not there any more.
	w.spec.Addresses[0] = netip.MustParsePrefix("10.8.64.8/24")
	w.spec.MTU = 1300
	w.spec.MAC = net.HardwareAddr{2, 0, 0, 0, 0, 8}
	if again, err = w.make(t, w.spec); err != nil || again.MAC.String() != w.spec.MAC.String() {
		t.Error(again, err)
	}
	w.whole(t)
	w.remove(t)
	w.remove(t)
	w.nothingLeft(t)
}

// M1: a gateway that has changed is the sandbox's once its port is made again, and a route
// that the spec has no more is none of it. What the sandbox added itself stays.
func TestM1RoutesOfAnotherSpec(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	if _, err := w.make(t, w.spec); err != nil {
		t.Fatal(err)
	}
	w.guest.Exec("ip", "route", "add", "10.77.0.0/16", "via", "10.8.64.9")
	w.guest.Exec("ip", "route", "add", "default", "via", "10.8.64.9", "metric", "50")
	w.spec.Routes = []Route{
		{To: netip.MustParsePrefix("0.0.0.0/0"), Via: netip.MustParseAddr("10.8.64.254")},
		{To: netip.MustParsePrefix("::/0"), Via: netip.MustParseAddr("fd08::2")},
	}
	for range 2 {
		if _, err := w.make(t, w.spec); err != nil {
			t.Fatal(err)
		}
		w.whole(t)
	}
	// One that another made is in the way.
	w.guest.Exec("ip", "route", "replace", "default", "via", "10.8.64.3")
	w.guest.Exec("ip", "-6", "route", "replace", "default", "via", "fd08::3")
	if _, err := w.make(t, w.spec); err != nil {
		t.Fatal(err)
	}
	w.whole(t)
	has := w.guest.Exec("ip", "route") + w.guest.Exec("ip", "-6", "route")
	for text, want := range map[string]bool{"10.77.0.0/16": true, "metric 50": true, "10.8.64.254": true, "fd08::2": true,
		"10.9.0.0/16": false, "10.8.64.1 ": false, "fd08::1 ": false, "10.8.64.3": false, "fd08::3": false} {
		if strings.Contains(has, text) != want {
			t.Errorf("%s: want %v, routes are\n%s", text, want, has)
		}
	}
	w.spec.Routes = nil
	if _, err := w.make(t, w.spec); err != nil {
		t.Fatal(err)
	}
	if has := w.guest.Exec("ip", "route"); strings.Contains(has, "10.8.64.254") || !strings.Contains(has, "metric 50") {
		t.Errorf("without routes there are\n%s", has)
	}
}

// M1: of two interfaces on one bridge the first keeps the default route, over both being
// made again, and the second is whole without.
func TestM1SecondInterface(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	second := specOf(w.guest.Path())
	second.Owner, second.Host, second.Guest = "lease-2", HostName("lease-2"), "eth1"
	second.MAC = net.HardwareAddr{2, 0, 0, 0, 0, 8}
	second.Addresses = []netip.Prefix{netip.MustParsePrefix("10.8.64.8/24"), netip.MustParsePrefix("fd08::8/64")}
	first := w.spec
	for range 2 {
		for _, s := range []Spec{first, second} {
			if _, err := w.make(t, s); err != nil {
				t.Fatal(err)
			}
		}
		for _, w.spec = range []Spec{first, second} {
			w.whole(t)
		}
		if has := w.guest.Exec("ip", "route", "show", "default"); !strings.Contains(has, "eth0") || strings.Contains(has, "eth1") {
			t.Errorf("default routes: %s", has)
		}
	}
	w.remove(t) // of the second
	w.spec = first
	w.whole(t)
	w.remove(t)
	w.nothingLeft(t)
}

// M1: two calls that make one port beside each other: both find it whole.
func TestM1MadeTwiceAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for range 20 {
		errs := make(chan error, 4)
		for range cap(errs) {
			go func() {
				_, err := w.make(t, w.spec)
				errs <- err
			}()
		}
		for range cap(errs) {
			if err := <-errs; err != nil {
				t.Error(err)
			}
		}
		w.whole(t)
		w.remove(t)
	}
}

// M1: a process that makes a port, and its namespace, is killed -9 after each of its
// steps; the next start finishes, or takes back, and nothing is left.
func TestM1KilledAtEachStep(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	dir := t.TempDir()
	for n := 1; ; n++ {
		ended := false
		for _, finish := range []bool{true, false} {
			w.spec = specOf(filepath.Join("/run/netns", "plumb-"+filepath.Base(filepath.Dir(dir))+strconv.Itoa(n)+strconv.FormatBool(finish)))
			t.Cleanup(func() { _ = RemoveNetns(w.spec.Netns) })
			ended = w.killed(t, n)
			if finish {
				w.finish(t, n)
			} else {
				w.remove(t)
			}
			if err := RemoveNetns(w.spec.Netns); err != nil {
				t.Errorf("step %d: %v", n, err)
			}
			if at := links(t, w.host); len(at) > 0 {
				t.Errorf("step %d: left %v", n, at)
			}
			if _, err := os.Lstat(w.spec.Netns); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("step %d: the name of the namespace: %v", n, err)
			}
		}
		if ended {
			if n < 10 {
				t.Errorf("there are %d steps only", n-1)
			}
			return
		}
	}
}

// killed runs a process that makes the port, which is killed at its nth step, and
// reports whether it ended before.
func (w *world) killed(t *testing.T, n int) (ended bool) {
	t.Helper()
	text, err := json.Marshal(w.spec)
	if err != nil {
		t.Fatal(err)
	}
	w.host.Do(func() { // a child is in its parent's namespace
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), victim+"="+string(text), victimStep+"="+strconv.Itoa(n))
		cmd.Stderr = os.Stderr
		err = cmd.Run()
	})
	exit := new(exec.ExitError)
	if errors.As(err, &exit) && exit.Sys().(syscall.WaitStatus).Signal() == unix.SIGKILL {
		return false
	}
	if err != nil {
		t.Fatalf("step %d: %v", n, err)
	}
	return true
}

// finish does what the next start does: a namespace whose making was cut short is
// taken back and made again.
func (w *world) finish(t *testing.T, n int) {
	t.Helper()
	_, err := w.make(t, w.spec)
	if errors.Is(err, ErrInvalid) || errors.Is(err, ErrMissing) {
		if err = errors.Join(RemoveNetns(w.spec.Netns), MakeNetns(w.spec.Netns)); err == nil {
			_, err = w.make(t, w.spec)
		}
	}
	if err != nil {
		t.Errorf("step %d: %v", n, err)
	}
	w.whole(t)
	w.answers(t, "10.8.64.7")
	w.remove(t)
}

// M1: what fails leaves nothing, names the field, and touches nothing of another.
func TestM1AllOrNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	pipe := filepath.Join(dir, "pipe")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	foreign, four := w.host.Port("rt0", "10.8.64.9/24"), nstest.New(t)
	four.Exec("sysctl", "-qw", "net.ipv6.conf.all.disable_ipv6=1")
	before := links(t, w.host)
	for name, c := range map[string]struct {
		change func(*Spec)
		field  string
		why    error
	}{
		"no owner":                       {func(s *Spec) { s.Owner = "" }, "owner", ErrInvalid},
		"no such namespace":              {func(s *Spec) { s.Netns = "/run/netns/none-such" }, "netns", ErrMissing},
		"a relative path":                {func(s *Spec) { s.Netns = "netns" }, "netns", ErrInvalid},
		"a file":                         {func(s *Spec) { s.Netns = file }, "netns", ErrInvalid},
		"a pipe":                         {func(s *Spec) { s.Netns = pipe }, "netns", ErrInvalid},
		"another kind of namespace":      {func(s *Spec) { s.Netns = "/proc/self/ns/mnt" }, "netns", ErrInvalid},
		"the bridge's namespace":         {func(s *Spec) { s.Netns = w.host.Path() }, "netns", ErrInvalid},
		"one of another network":         {func(s *Spec) { s.Netns = foreign.NS.Path() }, "guest", ErrTaken},
		"one where IPv6 is off":          {func(s *Spec) { s.Netns = four.Path() }, "netns", ErrFamilyOff},
		"no such bridge":                 {func(s *Spec) { s.Bridge = "rt9" }, "bridge", ErrMissing},
		"a bridge that is none":          {func(s *Spec) { s.Bridge = "lo1" }, "bridge", ErrMissing},
		"a port of another":              {func(s *Spec) { s.Host = foreign.HostName }, "host", ErrTaken},
		"a name that is too long":        {func(s *Spec) { s.Host = "sixteen-bytes-xx" }, "host", ErrInvalid},
		"a name with a slash":            {func(s *Spec) { s.Guest = "a/b" }, "guest", ErrInvalid},
		"a group's MAC":                  {func(s *Spec) { s.MAC = net.HardwareAddr{1, 0, 0, 0, 0, 1} }, "mac", ErrInvalid},
		"no address":                     {func(s *Spec) { s.Addresses = nil }, "addresses", ErrInvalid},
		"an address twice":               {func(s *Spec) { s.Addresses = append(s.Addresses, s.Addresses[0]) }, "addresses", ErrInvalid},
		"an MTU that IPv6 cannot do":     {func(s *Spec) { s.MTU = 600 }, "mtu", ErrInvalid},
		"a gateway that is on no link":   {func(s *Spec) { s.Routes[0].Via = netip.MustParseAddr("192.0.2.1") }, "routes", ErrInvalid},
		"a gateway of the other family":  {func(s *Spec) { s.Routes[0].Via = netip.MustParseAddr("fd08::1") }, "routes", ErrInvalid},
		"a route without its own family": {func(s *Spec) { s.Addresses = s.Addresses[1:] }, "routes", ErrInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			s := specOf(w.guest.Path())
			c.change(&s)
			_, err := w.make(t, s)
			refused := new(FieldError)
			if !errors.As(err, &refused) || refused.Field != c.field || !errors.Is(err, c.why) {
				t.Errorf("got %v, want field %s, %v", err, c.field, c.why)
			}
			if after := links(t, w.host); !slices.Equal(before, after) {
				t.Errorf("links %v, before %v", after, before)
			}
			if in := links(t, w.guest); len(in) > 0 {
				t.Errorf("left %v in the namespace", in)
			}
		})
	}
	w.host.Do(func() {
		if err := Remove(t.Context(), foreign.HostName, "lease-1"); !errors.Is(err, ErrTaken) {
			t.Errorf("remove another's port: %v", err)
		}
	})
}

// A port that may be in use is not taken to another namespace.
func TestAPortInAnotherNamespaceStays(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	if _, err := w.make(t, w.spec); err != nil {
		t.Fatal(err)
	}
	other := specOf(nstest.New(t).Path())
	_, err := w.make(t, other)
	refused := new(FieldError)
	if !errors.As(err, &refused) || refused.Field != "netns" || !errors.Is(err, ErrTaken) {
		t.Errorf("got %v", err)
	}
	w.whole(t)
}

func TestCheckNamesWhatDiffers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, c := range []struct {
		field string
		by    func()
	}{
		{"host", func() { w.host.Exec("ip", "link", "set", w.spec.Host, "down") }},
		{"bridge", func() { w.host.Exec("ip", "link", "set", w.spec.Host, "nomaster") }},
		{"guest", func() { w.guest.Exec("ip", "link", "set", "eth0", "name", "eth1") }},
		{"mtu", func() { w.guest.Exec("ip", "link", "set", "eth0", "mtu", "1399") }},
		{"mac", func() { w.guest.Exec("ip", "link", "set", "eth0", "address", "02:00:00:00:00:99") }},
		{"addresses", func() { w.guest.Exec("ip", "addr", "add", "10.8.64.77/24", "dev", "eth0") }},
		{"addresses", func() { w.guest.Exec("ip", "addr", "del", "fd08::7/64", "dev", "eth0") }},
		{"routes", func() { w.guest.Exec("ip", "route", "del", "default") }},
		{"host", func() { w.host.Exec("ip", "link", "del", w.spec.Host) }},
		{"netns", func() { w.spec.Netns = "/run/netns/none-such" }},
	} {
		if _, err := w.make(t, w.spec); err != nil {
			t.Fatal(c.field, err)
		}
		w.whole(t)
		c.by()
		w.host.Do(func() {
			diffs, err := Check(t.Context(), w.spec)
			if err != nil || !slices.ContainsFunc(diffs, func(d Difference) bool { return d.Field == c.field }) {
				t.Errorf("changed %s: %v %v", c.field, diffs, err)
			}
		})
		w.remove(t)
	}
}

// A neighbour that has the address under another MAC learns the new one.
func TestAnnounce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.host.Exec("ip", "neigh", "add", "10.8.64.7", "lladdr", "02:00:00:00:00:55", "dev", "rt0", "nud", "stale")
	w.host.Exec("ip", "neigh", "add", "fd08::7", "lladdr", "02:00:00:00:00:55", "dev", "rt0", "nud", "stale")
	wire := w.host.Port("rt0").NS.Wire("eth0")
	if _, err := w.make(t, w.spec); err != nil {
		t.Fatal(err)
	}
	w.host.Do(func() {
		if err := Announce(t.Context(), w.spec); err != nil {
			t.Error(err)
		}
	})
	arp, na := false, false
	for !arp || !na {
		frame, ok := wire.Receive(10 * time.Second)
		if !ok {
			t.Fatalf("on the wire: ARP %v, neighbour advertisement %v", arp, na)
		}
		a, n := netip.MustParseAddr("10.8.64.7"), netip.MustParseAddr("fd08::7")
		arp = arp || strings.HasPrefix(string(frame), string(gratuitousARP(w.spec.MAC, a)))
		na = na || strings.HasPrefix(string(frame), string(unsolicitedNA(w.spec.MAC, n)))
	}
	for _, a := range []string{"10.8.64.7", "fd08::7"} {
		realtest.Eventually(t, 10*time.Second, "the neighbour table to have the new MAC of "+a, func() bool {
			return strings.Contains(w.host.Exec("ip", "neigh", "show", a), w.spec.MAC.String())
		})
	}
}
