package docker_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/client"
	"github.com/ipamd/ipamd/internal/doctest"
	"github.com/ipamd/ipamd/internal/realtest"
)

// N8: Docker's client and daemon, unchanged: networks and containers have leases, which are
// confirmed to have ended, over kills of all three daemons.
func TestN8Docker(t *testing.T) {
	w := newWorld(t)
	w.network("sandboxes")
	a, b := w.sleeper("box-a", "--network", "sandboxes"), w.sleeper("box-b", "--network", "sandboxes")
	if a != "10.8.64.2" || b != "10.8.64.3" {
		t.Fatalf("they have %s and %s", a, b)
	}
	for _, addr := range []string{a, b} {
		is := w.whois(addr)
		if is.State != api.Bound || !strings.HasPrefix(is.Owner, "docker:02:42:") || is.Lease.Labels["docker-pool"] == "" {
			t.Errorf("%s: %s, %+v", addr, is.State, is.Lease)
		}
	}
	w.docker("exec", "box-a", "busybox", "ping", "-c", "1", "-W", "5", b)

	t.Run("a stopped container's address cools", func(t *testing.T) {
		w.docker("rm", "-f", "box-b")
		w.becomes(b, api.Cooling)
		if c := w.sleeper("box-c", "--network", "sandboxes"); c != "10.8.64.4" {
			t.Errorf("the next one has %s", c)
		}
	})
	t.Run("all three are killed", func(t *testing.T) {
		w.dockerd.kill()
		w.plugin.kill()
		w.ipamd.kill()
		w.startIpamd()
		w.startDriver()
		w.startDockerd()
		if out := w.docker("exec", "box-a", "busybox", "ip", "addr"); !strings.Contains(out, a+"/24") {
			t.Errorf("a has %s", out)
		}
		if is := w.whois(a); is.State != api.Bound {
			t.Errorf("%s is %s", a, is.State)
		}
		if d := w.sleeper("box-d", "--network", "sandboxes"); d != "10.8.64.5" {
			t.Errorf("a new one has %s", d)
		}
		w.docker("rm", "-f", "box-d")
		w.becomes("10.8.64.5", api.Cooling)
	})
	t.Run("a fixed address", func(t *testing.T) {
		w.sleeper("fixed", "--network", "sandboxes", "--ip", "10.8.64.77")
		w.refuses([]string{"10.8.64.77", "a container has it"}, "run", "--rm", "--network", "sandboxes", "--ip", "10.8.64.77", "box", "busybox", "true")
		w.docker("restart", "-t", "0", "fixed") // with a new MAC, and while it would rest
		if is := w.whois("10.8.64.77"); is.State != api.Bound {
			t.Errorf("it is %s", is.State)
		}
		w.refuses([]string{"10.8.64.4"}, "run", "--rm", "--network", "sandboxes", "--ip", "10.8.64.4", "box", "busybox", "true")
		w.docker("rm", "-f", "fixed")
	})
	t.Run("what others hold", func(t *testing.T) {
		r, err := w.client.Allocate(ctx, api.AllocateRequest{Sandbox: "another", Address: "10.8.64.9"})
		if err != nil {
			t.Fatal(err)
		}
		w.refuses([]string{"10.8.64.9", "another"}, "run", "--rm", "--network", "sandboxes", "--ip", "10.8.64.9", "box", "busybox", "true")
		if is := w.whois("10.8.64.9"); is.Lease == nil || is.Lease.ID != r.Leases[0].ID || is.State != api.Reserved {
			t.Errorf("it is %s, %+v", is.State, is.Lease)
		}
	})
	t.Run("a daemon that is away at a release, and a container that never comes", func(t *testing.T) {
		inspect, release := commands(t)
		mac := strings.TrimPrefix(release[3], "docker:")
		asked := w.post("/IpamDriver.RequestAddress", `{"PoolID":"default/10.8.64.0/24","Options":{"com.docker.network.endpoint.macaddress":"`+mac+`"}}`)
		_, lost, _ := strings.Cut(asked, `"Address":"`)
		lost, _, is := strings.Cut(lost, "/24")
		if !is {
			t.Fatal(asked)
		}
		w.plugin.kill()
		w.docker("rm", "-f", "box-c") // Docker gives up on its driver, and forgets the address
		w.startDriver()
		w.becomes("10.8.64.4", api.Cooling) // its port has gone: the reconciler says so
		held := w.whois(lost)
		if held.State != api.Bound {
			t.Fatalf("%s, of which nothing was ever seen, is %s", lost, held.State)
		}
		d, err := w.client.Doctor(ctx)
		if err != nil || !slices.ContainsFunc(d.Findings, func(f api.Finding) bool {
			return f.Kind == "bound_unseen" && f.LeaseID == held.Lease.ID && strings.Contains(f.Detail, release[3])
		}) {
			t.Errorf("doctor finds %+v, %v", d, err)
		}
		if out := w.docker(inspect[1:]...); !strings.Contains(out, "box-a 02:42:") || strings.Contains(out, mac) {
			t.Errorf("the network has %s", out)
		}
		w.ipamctl(release[1:]...)
		w.becomes(lost, api.Cooling)
	})
	t.Run("requests of strangers", func(t *testing.T) {
		for name, c := range map[string]struct{ path, body, says string }{
			"no JSON":                  {"RequestPool", `{"AddressSpace": 3`, "cannot be read"},
			"another address space":    {"RequestPool", `{"AddressSpace":"LocalDefault","Pool":"10.8.64.0/24"}`, `AddressSpace \"LocalDefault\"`},
			"no prefix":                {"RequestPool", `{"AddressSpace":"ipamd","Pool":"10.8.64"}`, "--subnet"},
			"bits beyond its length":   {"RequestPool", `{"AddressSpace":"ipamd","Pool":"10.8.64.1/24"}`, "write 10.8.64.0/24"},
			"an option that is empty":  {"RequestPool", `{"AddressSpace":"ipamd","Options":{"pool":""}}`, "--ipam-opt pool"},
			"another driver's pool":    {"RequestAddress", `{"PoolID":"LocalDefault/172.17.0.0/16"}`, "PoolID"},
			"a pool of another prefix": {"RequestAddress", `{"PoolID":"default/10.8.0.0/16"}`, "PoolID"},
			"no MAC":                   {"RequestAddress", `{"PoolID":"default/10.8.64.0/24"}`, "com.docker.network.endpoint.macaddress"},
			"a MAC that is none":       {"RequestAddress", `{"PoolID":"default/10.8.64.0/24","Options":{"com.docker.network.endpoint.macaddress":"02:42"}}`, "is no MAC"},
			"an address that is none":  {"ReleaseAddress", `{"PoolID":"default/10.8.64.0/24","Address":"10.8"}`, "field Address"},
			"another client's lease":   {"ReleaseAddress", `{"PoolID":"default/10.8.64.0/24","Address":"10.8.64.9"}`, "{}"},
			"another network's lease":  {"ReleaseAddress", `{"PoolID":"other/10.8.64.0/24","Address":"10.8.64.2"}`, "{}"},
			"an address of no pool":    {"ReleaseAddress", `{"PoolID":"default/10.8.64.0/24","Address":"192.0.2.1"}`, "{}"},
			"a method of tomorrow":     {"Forecast", `{}`, "404"},
		} {
			if out := w.post("/IpamDriver."+c.path, c.body); !strings.Contains(out, c.says) {
				t.Errorf("%s: %s", name, out)
			}
		}
		for addr, want := range map[string]api.State{"10.8.64.9": api.Reserved, "10.8.64.2": api.Bound} {
			if is := w.whois(addr); is.State != want {
				t.Errorf("%s is %s", addr, is.State)
			}
		}
		if l, err := w.client.Leases(ctx, client.LeaseFilter{State: string(api.Bound)}); err != nil || len(l.Leases) != 1 {
			t.Errorf("there are %+v, %v", l, err)
		}
	})
	t.Run("a network that does not suit", func(t *testing.T) {
		create := []string{"network", "create", "--ipam-driver", w.driver, "unfit"}
		w.refuses([]string{"--subnet", "--ipam-opt pool=NAME"}, create...)
		w.refuses([]string{"default", "route", "10.8.64.0/24"}, append(create, "--ipam-opt", "pool=default")...)
		w.refuses([]string{"no such v4 pool", "default"}, append(create, "--ipam-opt", "pool=other")...)
		w.refuses([]string{"size", "pool and bridge"}, append(create, "--ipam-opt", "size=3")...)
		w.refuses([]string{"--ip-range"}, append(create, "--subnet", "10.8.64.0/24", "--ip-range", "10.8.64.0/28")...)
		w.refuses([]string{"overlap", "10.8.64.0/24"}, append(create, "--subnet", "10.8.64.0/25")...)
		w.refuses([]string{"--gateway 10.8.64.9", "10.8.64.1"}, append(create, "--subnet", "10.8.64.0/24", "--gateway", "10.8.64.9")...)
		w.refuses([]string{"--aux-address 10.8.64.8", "--exclude"}, append(create, "--subnet", "10.8.64.0/24", "--aux-address", "printer=10.8.64.8")...)
		if pools, err := w.client.Pools(ctx); err != nil || len(pools.Pools) != 1 {
			t.Errorf("there are %+v, %v", pools, err)
		}
	})
	t.Run("a pool that is made for a network", func(t *testing.T) {
		w.docker("network", "create", "--ipam-driver", w.driver, "--subnet", "10.9.0.0/24", "--ipv6", "--subnet", "fd00:9::/64", "--ipam-opt", "bridge=br9", "-o", "com.docker.network.bridge.name=br9", "nine")
		if x := w.sleeper("box-x", "--network", "nine"); x != "10.9.0.2" {
			t.Errorf("it has %s", x)
		}
		if six := w.docker("inspect", "-f", "{{range .NetworkSettings.Networks}}{{.GlobalIPv6Address}}{{end}}", "box-x"); six != "fd00:9::2" || w.whois(six).State != api.Bound {
			t.Errorf("it has %s", six)
		}
		w.docker("rm", "-f", "box-x")
		w.docker("network", "rm", "nine")
		realtest.Eventually(t, patience, "the pools to go", func() bool { p, err := w.client.Pools(ctx); return err == nil && len(p.Pools) == 1 })
	})
	t.Run("a pool that two networks ask for", func(t *testing.T) {
		create := []string{"network", "create", "--ipam-driver", w.driver, "--subnet", "10.9.0.0/24", "--ipam-opt", "bridge=br9", "-o", "com.docker.network.bridge.name=br9"}
		w.docker(append(create, "nine")...)
		w.refuses([]string{"br9"}, append(create, "again")...) // the bridge is the other's
		if x := w.sleeper("box-x", "--network", "nine"); !strings.HasPrefix(x, "10.9.0.") {
			t.Errorf("beside a network that was refused it has %s", x)
		}
		w.docker("rm", "-f", "box-x")
		w.docker("network", "rm", "nine")
		if pools, err := w.client.Pools(ctx); err != nil || len(pools.Pools) != 2 {
			t.Errorf("a pool that two asked for went with one: %+v, %v", pools, err)
		}
	})
	t.Run("the book is lost", func(t *testing.T) { // the incident: a live container of which the book knows nothing
		w.ipamd.kill()
		for _, f := range []string{"book.db", "book.db-wal", "book.db-shm", "book.db-mark"} {
			_ = os.Remove(filepath.Join(w.dir, f))
		}
		w.startIpamd()
		if late := w.sleeper("late", "--network", "sandboxes"); late == a {
			t.Errorf("%s is given a second time", late)
		}
		w.refuses([]string{a, "quarantined"}, "run", "--rm", "--network", "sandboxes", "--ip", a, "box", "busybox", "true")
		w.docker("rm", "-f", "late")
	})
	w.docker("rm", "-f", "box-a")
	w.docker("network", "rm", "sandboxes")
	if pools, err := w.client.Pools(ctx); err != nil || len(pools.Pools) != 1 || pools.Pools[0].Name != "default" {
		t.Errorf("the configuration's pool went with a network: %+v, %v", pools, err)
	}
	t.Run("a network on another bridge than its pool", func(t *testing.T) { // where ipamd would not see its containers
		w.ns.AddAddr("rt0", "fd00:8::1/64")
		create := []string{"network", "create", "--ipam-driver", w.driver, "--subnet", "10.8.64.0/24"}
		id := w.docker(append(create, "--ipv6", "--subnet", "fd00:8::/64", "forgot")...)
		says := []string{"the gateway 10.8.64.1 is on br-" + id[:12] + " too, and pool default is on rt0: make the network with -o com.docker.network.bridge.name=rt0"}
		w.refuses(says, "run", "-d", "--network", "forgot", "box", "busybox", "sleep", "600")
		w.refuses(says, "run", "-d", "--network", "forgot", "--ip", "10.8.64.99", "box", "busybox", "sleep", "600")
		six := w.post("/IpamDriver.RequestAddress", `{"PoolID":"docker-fd00-8---64/fd00:8::/64","Options":{"com.docker.network.endpoint.macaddress":"02:42:00:00:00:99"}}`)
		if !strings.Contains(six, "the gateway fd00:8::1 is on br-"+id[:12]+" too") {
			t.Errorf("IPv6: %s", six)
		}
		if l, err := w.client.Leases(ctx, client.LeaseFilter{State: string(api.Bound)}); err != nil || len(l.Leases) != 0 {
			t.Errorf("there are %+v, %v", l, err)
		}
		w.docker("network", "rm", "forgot")
		w.docker(append(create, "-o", "com.docker.network.bridge.name=rt0", "minded")...)
		if x := w.sleeper("box-x", "--network", "minded"); w.whois(x).State != api.Bound {
			t.Errorf("%s is %s", x, w.whois(x).State)
		}
	})
}

// commands are what the page tells the reader to type about an address whose container never came.
func commands(t *testing.T) (inspect, release []string) {
	t.Helper()
	for _, words := range doctest.Commands(t, "docs/DOCKER.md", "docker", "ipamctl") {
		switch line := strings.Join(words, " "); {
		case strings.HasPrefix(line, "docker network inspect -f "):
			format, network, _ := strings.Cut(strings.TrimPrefix(line, "docker network inspect -f '"), "' ")
			inspect = append(words[:4:4], format, network)
		case strings.HasPrefix(line, "ipamctl release --sandbox docker:"):
			release = words
		}
	}
	if inspect == nil || release == nil {
		t.Fatalf("the page has %q and %q", inspect, release)
	}
	return inspect, release
}

// N8 and the incident: rt0 is deleted under a running container and made again, and dockerd plugs
// nothing into it. The lease stays until the container is removed, and no other container gets its
// address, by wish neither.
func TestN8ABridgeThatIsMadeAnew(t *testing.T) {
	w := newWorld(t)
	w.network("n")
	one := w.sleeper("one", "--network", "n")
	realtest.Eventually(t, patience, "its port to be recorded", func() bool {
		return slices.ContainsFunc(w.whois(one).History, func(c api.Change) bool { return c.Reason == "seen_plugged" })
	})
	w.ns.Exec("ip", "link", "del", "rt0")
	w.ns.Bridge("rt0", "10.8.64.1/24")
	passed := time.Now().Add(6 * time.Second) // twice the age at which an absent lease is reaped
	realtest.Eventually(t, patience, "the passes after it", func() bool { return time.Now().After(passed) })
	w.becomes(one, api.Bound)
	w.refuses([]string{one}, "run", "--rm", "--network", "n", "--ip", one, "box", "busybox", "true")
	w.docker("rm", "-f", "one")
	w.becomes(one, api.Cooling)
}
