package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/internal/ctrdtest"
	"github.com/ipamd/ipamd/internal/nstest"
	"github.com/ipamd/ipamd/internal/realtest"
)

// N1, N7: below the reference bridge, by cnitool, in every version of the protocol.
func TestN1AddCheckDelByCnitool(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "10.8.64.0/24", "")
	for _, version := range []string{"0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"} {
		name := "net-" + version
		w.network(name, version, "")
		box := nstest.New(t)
		out, err := w.cnitool("add", name, box.Path())
		if err != nil {
			t.Fatalf("%s: %v", version, err)
		}
		held := w.leases()
		if len(held) != 1 {
			t.Fatalf("%s: leases %+v", version, held)
		}
		l := held[0]
		if !strings.Contains(out, l.Address+"/24") || !strings.Contains(out, "10.8.64.1") {
			t.Errorf("%s: %s does not have %s", version, out, l.Address)
		}
		if l.State != api.Bound || l.Netns != box.Path() || l.HostInterface == "" || l.MAC == "" || l.Labels["cni.dev/network"] != name {
			t.Errorf("%s: the lease is %+v", version, l)
		}
		box.Exec("busybox", "ping", "-c1", "-W5", "10.8.64.1")
		if version >= "0.4.0" {
			if _, err := w.cnitool("check", name, box.Path()); err != nil {
				t.Errorf("%s: check: %v", version, err)
			}
		}
		if version >= "1.1.0" {
			if _, err := w.cnitool("status", name, ""); err != nil {
				t.Errorf("%s: status: %v", version, err)
			}
		}
		for range 2 {
			if _, err := w.cnitool("del", name, box.Path()); err != nil {
				t.Errorf("%s: del: %v", version, err)
			}
		}
		w.none("after del of " + version)
	}
	out, err := w.plugin("VERSION", "")
	if err != nil || !strings.Contains(out, `"0.1.0"`) || !strings.Contains(out, `"1.1.0"`) {
		t.Errorf("version: %s, %v", out, err)
	}
}

// An attachment is one call of the plugin as the reference bridge makes it.
type attachment struct {
	w         *world
	network   string
	kind      string // of the main plugin; "": bridge
	version   string
	ipam      string // more keys of it
	more      string // more keys beside it
	container string
	netns     string
	args      string
}

func (a attachment) conf(more string) string {
	version := a.version
	if version == "" {
		version = "1.1.0"
	}
	return fmt.Sprintf(`{"cniVersion": %q, "name": %q, "type": %q, "bridge": "rt0", "ipam": {"type": "ipamd", "socket": %q%s}%s%s}`,
		version, a.network, cmp.Or(a.kind, "bridge"), a.w.socket, a.ipam, a.more, more)
}

func (a attachment) call(verb string, more ...string) (string, error) {
	return a.w.plugin(verb, a.conf(strings.Join(more, "")), "CNI_CONTAINERID="+a.container, "CNI_NETNS="+a.netns, "CNI_IFNAME=eth0", "CNI_ARGS="+a.args)
}

// N1, N5: the verbs of a plugin, in any order and as often as a runtime likes.
func TestN5VerbsInAnyOrder(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "10.8.64.0/24", "")
	box := w.ns.Port("rt0")
	a := attachment{w: w, network: "n", container: "c1", netns: box.NS.Path()}

	if _, err := a.call("DEL"); err != nil {
		t.Errorf("del without add: %v", err)
	}
	first := w.added(a.call("ADD"))
	prev, _ := json.Marshal(first)
	again := w.added(a.call("ADD"))
	if len(first.IPs) != 1 || first.IPs[0].Address.String() != again.IPs[0].Address.String() || len(w.leases()) != 1 {
		t.Errorf("added twice: %+v, then %+v; leases %+v", first, again, w.leases())
	}
	if l := w.leases()[0]; l.HostInterface != box.HostName || l.MAC != box.MAC.String() {
		t.Errorf("bound as %+v, and the port is %s, %s", l, box.HostName, box.MAC)
	}
	if _, err := a.call("CHECK", `, "prevResult": `+string(prev)); err != nil {
		t.Errorf("check: %v", err)
	}
	other := strings.ReplaceAll(string(prev), first.IPs[0].Address.IP.String()+"/", "10.8.64.99/")
	if _, err := a.call("CHECK", `, "prevResult": `+other); code(err) != codeLost {
		t.Errorf("check of another address: %v", err)
	}
	// The second is another container's, whatever its interface is called.
	b := a
	b.container = "c2"
	b.netns = w.ns.Port("rt0").NS.Path()
	if r := w.added(b.call("ADD")); r.IPs[0].Address.String() == first.IPs[0].Address.String() {
		t.Error("two containers have one address")
	}
	// The same container in another network is another owner.
	c := a
	c.network = "m"
	_, err := c.call("DEL")
	for _, l := range w.leases() {
		if err != nil || l.State != api.Bound {
			t.Errorf("del in another network: %v, lease %+v", err, l)
		}
	}
	box.Close()
	a.netns = ""
	for range 2 { // the second is one that a CRI always makes
		if _, err := a.call("DEL"); err != nil {
			t.Errorf("del without a namespace: %v", err)
		}
	}
	realtest.Eventually(t, wait, "the first has ended", func() bool { return len(w.leases()) == 1 })
	if _, err := a.call("CHECK", `, "prevResult": `+string(prev)); code(err) != types.ErrInvalidEnvironmentVariables {
		t.Errorf("check without a namespace: %v", err)
	}
	// Made again under the same id, it is the same owner.
	a.netns = w.ns.Port("rt0").NS.Path()
	w.added(a.call("ADD"))
	if held := w.leases(); len(held) != 2 {
		t.Errorf("leases of two containers: %+v", held)
	}
}

// N5: a container of the same id is plugged in elsewhere while its former port is there:
// its address is not given to a second interface.
func TestN5OneContainerTwoPorts(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "10.8.64.0/24", "")
	a := attachment{w: w, network: "n", container: "c1", netns: w.ns.Port("rt0").NS.Path()}
	w.added(a.call("ADD"))
	was := w.leases()[0]
	b := a
	b.netns = w.ns.Port("rt0").NS.Path()
	if _, err := b.call("ADD"); code(err) != codeRefused || !strings.Contains(err.Error(), was.HostInterface) {
		t.Errorf("added at a second port: %v", err)
	}
	if now := w.leases(); len(now) != 1 || now[0].Netns != was.Netns || now[0].HostInterface != was.HostInterface {
		t.Errorf("the lease is %+v, and was %+v", now, was)
	}
}

// N5: killed at any moment of an ADD, what it has taken ends once its workload is gone, and
// the next ADD of the same container has no second address.
func TestN5KilledInMidAdd(t *testing.T) {
	realtest.Long(t)
	t.Parallel()
	w := newWorld(t, "10.8.64.0/24", "")
	for i := range 12 {
		box := w.ns.Port("rt0")
		a := attachment{w: w, network: "n", container: fmt.Sprint("c", i), netns: box.NS.Path()}
		cmd := w.command([]string{"CNI_COMMAND=ADD", "CNI_CONTAINERID=" + a.container, "CNI_NETNS=" + a.netns, "CNI_IFNAME=eth0"}, w.bin+"/ipamd")
		cmd.Stdin = strings.NewReader(a.conf(""))
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Duration(i) * 2 * time.Millisecond)
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if i%2 == 0 {
			w.added(a.call("ADD"))
			n := 0
			for _, l := range w.leases() {
				if l.Sandbox == a.container {
					n++
				}
			}
			if n != 1 {
				t.Errorf("%s has %d leases", a.container, n)
			}
		}
		if i%3 == 0 {
			if _, err := a.call("DEL"); err != nil {
				t.Error(err)
			}
		}
		box.Close()
	}
	// Those that were not deleted are missed: bound ones by their workload.
	realtest.Eventually(t, wait, "what was plugged is gone", func() bool {
		for _, l := range w.leases() {
			if l.State != api.Reserved { // the answer was lost, and its deadline is a minute
				return false
			}
		}
		return true
	})
}

// N4: a DEL of a sandbox that the daemon does not know is a success.
func TestN4DaemonIsDown(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "10.8.64.0/24", "")
	w.network("n", "1.1.0", `, "wait": "300ms"`)
	gone, stays := nstest.New(t), nstest.New(t)
	for _, box := range []*nstest.NS{gone, stays} {
		w.added(w.cnitool("add", "n", box.Path()))
	}
	w.stop()
	late := nstest.New(t)
	if _, err := w.cnitool("add", "n", late.Path()); err == nil || !strings.Contains(err.Error(), "is ipamd running?") {
		t.Errorf("add without a daemon: %v", err)
	}
	direct := attachment{w: w, network: "n", container: "x", netns: late.Path(), ipam: `, "wait": "10ms"`}
	if _, err := direct.call("ADD"); code(err) != types.ErrTryAgainLater {
		t.Errorf("add without a daemon: %v", err)
	}
	if _, err := direct.call("STATUS"); code(err) != types.ErrPluginNotAvailable {
		t.Errorf("status without a daemon: %v", err)
	}
	if _, err := w.cnitool("del", "n", gone.Path()); err != nil {
		t.Errorf("del without a daemon: %v", err)
	}
	w.start()
	realtest.Eventually(t, wait, "who was deleted meanwhile is found", func() bool { return len(w.leases()) == 1 })
	if l := w.leases()[0]; l.Netns != stays.Path() || l.State != api.Bound {
		t.Errorf("left is %+v", l)
	}
	if _, err := w.cnitool("del", "n", stays.Path()); err != nil {
		t.Error(err)
	}
}

// N4: nor does a DEL wait for a daemon that hangs.
func TestN4DaemonHangs(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "10.8.64.0/24", "")
	box := nstest.New(t)
	if _, err := w.plugged("ADD", "c1", box.Path(), ""); err != nil {
		t.Fatal(err)
	}
	if err := w.daemon.Process.Signal(syscall.SIGSTOP); err != nil { // nsenter's process becomes it
		t.Fatal(err)
	}
	began := time.Now()
	_, err := w.plugged("DEL", "c1", box.Path(), "")
	took := time.Since(began)
	if err := w.daemon.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if err != nil || took > 10*releaseWait || w.ports() != "" {
		t.Errorf("del took %s, %v; the ports are %q", took, err, w.ports())
	}
	w.none("once it goes on")
}

// N4: the same beside a containerd that has no container at all, and knows none of CNI's.
func TestN4BesideAnEmptyContainerd(t *testing.T) {
	realtest.Long(t)
	t.Parallel()
	ctrdtest.One(t, func(t *testing.T, d *ctrdtest.Daemon) {
		w := prepare(t, "10.8.64.0/24", "")
		w.edit("kind = 'none'", "kind = 'containerd'\naddress = '"+d.Address+"'")
		w.start()
		box := w.ns.Port("rt0")
		w.added(attachment{w: w, network: "n", container: "c1", netns: box.NS.Path()}.call("ADD"))
		box.Close() // no DEL comes
		w.none("after its namespace has gone")
	})
}

// N4: an ADD waits for a daemon that comes.
func TestN4AddWaitsForTheDaemon(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "10.8.64.0/24", "")
	a := attachment{w: w, network: "n", container: "c1", netns: w.ns.Port("rt0").NS.Path(), ipam: `, "wait": "60s"`}
	w.stop()
	cmd := w.command([]string{"CNI_COMMAND=ADD", "CNI_CONTAINERID=c1", "CNI_NETNS=" + a.netns, "CNI_IFNAME=eth0"}, w.bin+"/ipamd")
	answered := make(chan error, 1)
	go func() {
		_, err := run(cmd, a.conf(""))
		answered <- err
	}()
	time.Sleep(100 * time.Millisecond)
	w.start()
	if err := <-answered; err != nil {
		t.Fatal(err)
	}
	if len(w.leases()) != 1 {
		t.Errorf("leases %+v", w.leases())
	}
}

// N2: STATUS fails while no ADD can succeed.
func TestN2Status(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "10.8.64.0/29", "") // five addresses
	w.network("n", "1.1.0", "")
	a := attachment{w: w, network: "n", container: "c1"}
	if _, err := a.call("STATUS"); err != nil {
		t.Errorf("of a pool with room: %v", err)
	}
	none := a
	none.ipam = `, "pool": "nobody"`
	if _, err := none.call("STATUS"); code(err) != types.ErrPluginNotAvailable || !strings.Contains(err.Error(), "ipam.pool") {
		t.Errorf("of a pool that is not there: %v", err)
	}
	for i := range 5 {
		b := a
		b.container, b.netns = fmt.Sprint("full", i), w.ns.Port("rt0").NS.Path()
		w.added(b.call("ADD"))
	}
	if _, err := a.call("STATUS"); code(err) != types.ErrPluginNotAvailable || !strings.Contains(err.Error(), "exhausted") {
		t.Errorf("of a pool without room: %v", err)
	}
	if _, err := w.cnitool("status", "n", ""); err == nil || !strings.Contains(err.Error(), "exhausted") {
		t.Errorf("by cnitool, below the bridge: %v", err)
	}
	a.netns = w.ns.Port("rt0").NS.Path()
	if _, err := a.call("ADD"); code(err) != types.ErrTryAgainLater {
		t.Errorf("add to a pool without room: %v", err)
	}
	w.ns.Exec("ip", "link", "set", "rt0", "down")
	realtest.Eventually(t, wait, "a bridge that is down, or is made up again", func() bool {
		_, err := a.call("STATUS")
		return code(err) == types.ErrPluginNotAvailable
	})
}

// N2: of two families STATUS looks at those that an ADD asks for.
func TestN2StatusOfTwoFamilies(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "10.8.64.0/24", "[[pool]]\nname = 'default'\nprefix = 'fd00:8::/126'\n")
	a := attachment{w: w, network: "n", ipam: `, "family": "v6"`}
	for i := 0; ; i++ {
		a.container, a.netns = fmt.Sprint("c", i), w.ns.Port("rt0").NS.Path()
		if _, err := a.call("ADD"); code(err) == types.ErrTryAgainLater {
			break
		} else if err != nil || i > 4 {
			t.Fatal(i, err)
		}
	}
	for family, want := range map[string]uint{"": 0, "v4": 0, "v6": types.ErrPluginNotAvailable, "dual": types.ErrPluginNotAvailable} {
		a.ipam, a.container = fmt.Sprintf(`, "family": %q`, family), "one-"+family
		_, err := a.call("STATUS")
		if code(err) != want || (err == nil) != (want == 0) {
			t.Errorf("family %q: %v", family, err)
		}
		if _, added := a.call("ADD"); (added == nil) != (err == nil) {
			t.Errorf("family %q: status %v, add %v", family, err, added)
		}
	}
}

// N1: CHECK of two addresses, of which the book has lost one.
func TestN1CheckOfALostFamily(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "10.8.64.0/24", v6More)
	for i, ipam := range []string{`, "family": "dual"`, ""} {
		a := attachment{w: w, network: "n", container: fmt.Sprint("c", i), netns: w.ns.Port("rt0").NS.Path(), ipam: ipam, args: "IP=10.8.64.7"}
		if ipam == "" {
			a.args = "IP=10.8.64.8,fd00:8::8"
		}
		r := w.added(a.call("ADD"))
		out, _ := json.Marshal(r)
		prev := `, "prevResult": ` + string(out)
		if _, err := a.call("CHECK", prev); err != nil || len(r.IPs) != 2 {
			t.Errorf("check of %+v: %v", r, err)
		}
		for _, l := range w.leases() {
			if l.Sandbox == a.container && strings.Contains(l.Address, ":") {
				if _, err := w.client.Release(t.Context(), l.ID, api.ReleaseRequest{}); err != nil {
					t.Fatal(err)
				}
			}
		}
		if _, err := a.call("CHECK", prev); code(err) != codeLost || !strings.Contains(err.Error(), "fd00:8::") {
			t.Errorf("check of a lease that is released: %v", err)
		}
	}
}

// N6: an address that is wanted is given, or refused with the reason.
func TestN6WantedAddresses(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "10.8.64.0/24", "[[pool]]\nname = 'default'\nprefix = 'fd00:8::/64'\n")
	add := func(container, ipam, more, args string) (string, error) {
		return attachment{w: w, network: "n", container: container, netns: w.ns.Port("rt0").NS.Path(), ipam: ipam, more: more, args: args}.call("ADD")
	}
	for name, c := range map[string]struct {
		ipam, more, args string
		has              []string
	}{
		"runtimeConfig": {"", `, "runtimeConfig": {"ips": ["10.8.64.50/24"]}`, "", []string{"10.8.64.50/24"}},
		"args":          {"", `, "args": {"cni": {"ips": ["10.8.64.51"]}}`, "", []string{"10.8.64.51/24"}},
		"CNI_ARGS":      {"", "", "IgnoreUnknown=1;FOO=bar;IP=10.8.64.52", []string{"10.8.64.52/24"}},
		"both families": {"", `, "runtimeConfig": {"ips": ["10.8.64.53/24", "fd00:8::53/64"]}`, "", []string{"10.8.64.53/24", "fd00:8::53/64"}},
		"one of two":    {`, "family": "dual"`, `, "runtimeConfig": {"ips": ["fd00:8::54"]}`, "", []string{"fd00:8::54/64", "10.8.64."}},
		"dual":          {`, "family": "dual"`, "", "", []string{"10.8.64.", "fd00:8::"}},
	} {
		r := w.added(add(strings.ReplaceAll("want "+name, " ", "-"), c.ipam, c.more, c.args))
		if len(r.IPs) != len(c.has) {
			t.Errorf("%s: %+v", name, r)
			continue
		}
		for i, want := range c.has {
			if got := r.IPs[i].Address.String(); !strings.HasPrefix(got, want) {
				t.Errorf("%s: got %s, want %s", name, got, want)
			}
		}
	}
	before := len(w.leases())
	for name, c := range map[string]struct {
		ipam, more, args string
		code             uint
		says             string
	}{
		"another's":           {"", `, "runtimeConfig": {"ips": ["10.8.64.50"]}`, "", codeRefused, "10.8.64.50"},
		"outside":             {"", `, "runtimeConfig": {"ips": ["10.9.0.1"]}`, "", codeRefused, "10.9.0.1"},
		"no address":          {"", `, "runtimeConfig": {"ips": ["pear"]}`, "", types.ErrInvalidNetworkConfig, "runtimeConfig.ips"},
		"no address in args":  {"", "", "IP=pear", types.ErrInvalidEnvironmentVariables, "IP of CNI_ARGS"},
		"two of one family":   {"", `, "args": {"cni": {"ips": ["10.8.64.70", "10.8.64.71"]}}`, "", types.ErrInvalidNetworkConfig, "args.cni.ips"},
		"of the other family": {`, "family": "v6"`, "", "IP=10.8.64.70", types.ErrInvalidEnvironmentVariables, "IP of CNI_ARGS"},
		"two in CNI_ARGS":     {"", "", "IP=10.8.64.70,10.8.64.71", types.ErrInvalidEnvironmentVariables, "IP of CNI_ARGS"},
		"second is another's": {"", `, "runtimeConfig": {"ips": ["10.8.64.80", "fd00:8::53"]}`, "", codeRefused, "fd00:8::53"},
	} {
		if _, err := add("refused", c.ipam, c.more, c.args); code(err) != c.code || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want code %d and %s", name, err, c.code, c.says)
		}
	}
	if after := w.leases(); len(after) != before {
		t.Errorf("refused, and yet leased: %d leases were, %+v are", before, after)
	}
}

// N1: what is wrong is named in the protocol's own error, and nothing is reserved.
func TestN1BadInput(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "10.8.64.0/24", "")
	box := w.ns.Port("rt0")
	w.ns.Exec("ip", "link", "add", "br9", "type", "bridge")
	elsewhere := w.ns.Port("rt0")
	w.ns.Exec("ip", "link", "set", elsewhere.HostName, "master", "br9")
	bare, empty := nstest.New(t), w.dir+"/empty"
	if out, err := exec.Command("touch", empty).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	good := attachment{w: w, network: "n", container: "c1", netns: box.NS.Path()}
	for name, c := range map[string]struct {
		change func(*attachment)
		code   uint
		says   string
	}{
		"a key of ipam":       {func(a *attachment) { a.ipam = `, "subnet": "10.0.0.0/8"` }, types.ErrInvalidNetworkConfig, "ipam.subnet"},
		"a family":            {func(a *attachment) { a.ipam = `, "family": "ipx"` }, types.ErrInvalidNetworkConfig, "ipam.family"},
		"a wait":              {func(a *attachment) { a.ipam = `, "wait": "soon"` }, types.ErrInvalidNetworkConfig, "ipam.wait"},
		"a type of a key":     {func(a *attachment) { a.ipam = `, "pool": 7` }, types.ErrDecodingFailure, "ipam.pool is a number"},
		"a pool":              {func(a *attachment) { a.ipam = `, "pool": "nobody"` }, types.ErrInvalidNetworkConfig, `ipam.pool: there is no pool "nobody"`},
		"a version":           {func(a *attachment) { a.version = "9.9.9" }, types.ErrIncompatibleCNIVersion, "9.9.9"},
		"no namespace":        {func(a *attachment) { a.netns = "" }, types.ErrInvalidEnvironmentVariables, "CNI_NETNS"},
		"no such namespace":   {func(a *attachment) { a.netns = "/run/netns/nobody" }, types.ErrInvalidNetNS, "CNI_NETNS"},
		"no network":          {func(a *attachment) { a.netns = empty }, types.ErrInvalidNetNS, "CNI_NETNS"},
		"another's namespace": {func(a *attachment) { a.netns = "/proc/self/ns/pid" }, types.ErrInvalidNetNS, "CNI_NETNS"},
		"the host's own":      {func(a *attachment) { a.netns = w.ns.Path() }, types.ErrInvalidNetNS, "CNI_NETNS"},
		"another bridge":      {func(a *attachment) { a.netns = elsewhere.NS.Path() }, types.ErrInvalidNetworkConfig, "br9"},
		"a plugin of routes":  {func(a *attachment) { a.kind, a.netns = "ptp", bare.Path() }, types.ErrInvalidNetworkConfig, `type "ptp"`},
		"no container":        {func(a *attachment) { a.container = "" }, types.ErrInvalidEnvironmentVariables, "CNI_CONTAINERID"},
		"an argument":         {func(a *attachment) { a.args = "FOO=bar" }, types.ErrInvalidEnvironmentVariables, "FOO"},
	} {
		a := good
		c.change(&a)
		_, err := a.call("ADD")
		if e := (*types.Error)(nil); code(err) != c.code || !asError(err, &e) || !strings.Contains(e.Msg+e.Details, c.says) {
			t.Errorf("%s: %v, want code %d and %s", name, err, c.code, c.says)
		}
	}
	w.none("of what was refused")
}

func asError(err error, e **types.Error) (is bool) {
	*e, is = err.(*types.Error)
	return is
}
