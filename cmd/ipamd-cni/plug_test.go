package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/types"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/internal/nstest"
	"github.com/ipamd/ipamd/internal/realtest"
)

// mainNetwork writes a list whose main plugin is ipamd.
func (w *world) mainNetwork(name, version, more string) {
	w.write(name, version, fmt.Sprintf(`{"type": "ipamd", "socket": %q, "capabilities": {"ips": true, "mac": true}%s}`, w.socket, more))
}

// v6More is the second family of a world's pool.
const v6More = "[[pool]]\nname = 'default'\nprefix = 'fd00:8::/64'\n"

// plugged calls ipamd as the main plugin of the network n, for eth0 of a container.
func (w *world) plugged(verb, container, netns, more string, env ...string) (string, error) {
	conf := fmt.Sprintf(`{"cniVersion": "1.1.0", "name": "n", "type": "ipamd", "socket": %q%s}`, w.socket, more)
	return w.plugin(verb, conf, append([]string{"CNI_CONTAINERID=" + container, "CNI_NETNS=" + netns, "CNI_IFNAME=eth0"}, env...)...)
}

// ports are the names of those of rt0.
func (w *world) ports() string {
	w.t.Helper()
	all, err := w.ns.Netlink().LinkList()
	if err != nil {
		w.t.Fatal(err)
	}
	rt0, err := w.ns.Netlink().LinkByName("rt0")
	if err != nil {
		w.t.Fatal(err)
	}
	var names []string
	for _, l := range all {
		if l.Attrs().MasterIndex == rt0.Attrs().Index {
			names = append(names, l.Attrs().Name)
		}
	}
	return strings.Join(names, " ")
}

// N7: as a main plugin, in each version of the protocol, and no port is left.
func TestN7MainPlugin(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "10.8.64.0/24", v6More)
	for _, version := range []string{"0.3.1", "1.0.0", "1.1.0"} {
		name := "main-" + version
		w.mainNetwork(name, version, `, "family": "dual", "wait": "300ms"`)
		box := nstest.New(t)
		first, err := w.cnitool("add", name, box.Path())
		if err != nil {
			t.Fatalf("%s: %v", version, err)
		}
		again, err := w.cnitool("add", name, box.Path())
		if err != nil || again != first {
			t.Errorf("%s: added twice: %v\n%s\n%s", version, err, first, again)
		}
		held := w.leases()
		if len(held) != 2 || held[0].State != api.Bound || held[0].Netns != box.Path() || !strings.Contains(w.ports(), held[0].HostInterface) {
			t.Fatalf("%s: leases %+v, ports %s", version, held, w.ports())
		}
		for _, want := range []string{held[0].Address + "/24", held[1].Address + "/64", held[0].HostInterface, held[0].MAC} {
			if !strings.Contains(first, want) {
				t.Errorf("%s: %s is not in %s", version, want, first)
			}
		}
		box.Exec("busybox", "ping", "-c1", "-W5", "10.8.64.1")
		box.Exec("busybox", "ping", "-6", "-c1", "-W5", "fd00:8::1")
		if version >= "0.4.0" {
			if _, err := w.cnitool("check", name, box.Path()); err != nil {
				t.Errorf("%s: check: %v", version, err)
			}
			box.Exec("ip", "addr", "del", held[0].Address+"/24", "dev", "eth0")
			if _, err := w.cnitool("check", name, box.Path()); err == nil || !strings.Contains(err.Error(), held[0].Address) {
				t.Errorf("%s: check of a port that was changed: %v", version, err)
			}
		}
		if version == "1.0.0" { // N4: the daemon is not there
			w.stop()
		}
		for range 2 {
			if _, err := w.cnitool("del", name, box.Path()); err != nil {
				t.Errorf("%s: del: %v", version, err)
			}
		}
		if left := w.ports(); left != "" {
			t.Errorf("%s: after del there are %s", version, left)
		}
		if version == "1.0.0" {
			w.start()
		}
		w.none("after del of " + version)
	}
}

// N5, N7: as a main plugin, killed at any moment, and asked wrongly.
func TestN7MainPluginIsAllOrNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "10.8.64.0/24", "")
	call := func(verb, container, netns, more string) (string, error) {
		conf := fmt.Sprintf(`{"cniVersion": "1.1.0", "name": "n", "type": "ipamd", "socket": %q%s}`, w.socket, more)
		return w.plugin(verb, conf, "CNI_CONTAINERID="+container, "CNI_NETNS="+netns, "CNI_IFNAME=eth0")
	}
	taken := w.ns.Port("rt0") // it has an eth0 already
	box := nstest.New(t)
	for name, c := range map[string]struct {
		netns, more string
		code        uint
		says        string
	}{
		"an interface that is there": {taken.NS.Path(), "", codeRefused, "eth0"},
		"a MAC":                      {box.Path(), `, "runtimeConfig": {"mac": "pear"}`, types.ErrInvalidNetworkConfig, "runtimeConfig.mac"},
		"a group's MAC":              {box.Path(), `, "runtimeConfig": {"mac": "01:00:00:00:00:01"}`, types.ErrInvalidNetworkConfig, "runtimeConfig.mac"},
		"behind another main plugin": {box.Path(), `, "prevResult": {"cniVersion": "1.1.0"}`, types.ErrInvalidNetworkConfig, "prevResult"},
		"a key":                      {box.Path(), `, "vlan": 7`, types.ErrInvalidNetworkConfig, "vlan"},
	} {
		if _, err := call("ADD", "wrong", c.netns, c.more); code(err) != c.code || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want code %d and %s", name, err, c.code, c.says)
		}
	}
	realtest.Eventually(t, wait, "nothing is left of what was refused", func() bool { return len(w.leases()) == 0 })
	taken.Close()

	// Plugged in elsewhere while it is plugged in.
	if _, err := call("ADD", "two", box.Path(), `, "runtimeConfig": {"mac": "02:00:00:00:77:01"}`); err != nil {
		t.Fatal(err)
	}
	was := w.leases()
	if len(was) != 1 || was[0].MAC != "02:00:00:00:77:01" {
		t.Errorf("leases %+v", was)
	}
	if _, err := call("ADD", "two", nstest.New(t).Path(), ""); code(err) != codeRefused {
		t.Errorf("added in a second namespace: %v", err)
	}
	if now := w.leases(); len(now) != 1 || now[0].Netns != box.Path() || !strings.Contains(w.ports(), now[0].HostInterface) {
		t.Errorf("after that the lease is %+v, the ports %s", now, w.ports())
	}
	if _, err := call("DEL", "two", "", ""); err != nil {
		t.Error(err)
	}

	for i := range 16 {
		box, container := nstest.New(t), fmt.Sprint("killed", i)
		cmd := w.command([]string{"CNI_COMMAND=ADD", "CNI_CONTAINERID=" + container, "CNI_NETNS=" + box.Path(), "CNI_IFNAME=eth0"}, w.bin+"/ipamd")
		cmd.Stdin = strings.NewReader(fmt.Sprintf(`{"cniVersion": "1.1.0", "name": "n", "type": "ipamd", "socket": %q}`, w.socket))
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Duration(i) * 1500 * time.Microsecond)
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if i%2 == 0 {
			if _, err := call("ADD", container, box.Path(), ""); err != nil {
				t.Errorf("the next ADD: %v", err)
			}
		}
		if _, err := call("DEL", container, box.Path(), ""); err != nil {
			t.Error(err)
		}
	}
	if left := w.ports(); left != "" {
		t.Errorf("left are ports %s", left)
	}
	w.none("of what was killed and deleted")
}

// N5, N7: a second ADD that is refused takes nothing away that the first one has made.
func TestN7RefusedAddLeavesThePort(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "10.8.64.0/24", v6More)
	for name, again := range map[string]struct{ container, netns, more, args string }{
		"in another namespace, of the other family": {"c1", nstest.New(t).Path(), `, "family": "v6"`, ""},
		"with a MAC that is none":                   {"c2", "", "", "IP=fd00:8::77;MAC=pear"},
		"with a group's MAC":                        {"c3", "", `, "family": "v6"`, "MAC=01:00:00:00:00:01"},
	} {
		box, container := nstest.New(t), again.container
		if _, err := w.plugged("ADD", container, box.Path(), ""); err != nil {
			t.Fatal(err)
		}
		before := w.ports()
		netns := again.netns
		if netns == "" {
			netns = box.Path()
		}
		if _, err := w.plugged("ADD", container, netns, again.more, "CNI_ARGS="+again.args); err == nil {
			t.Errorf("%s: the second ADD succeeds", name)
		}
		if now := w.ports(); now != before {
			t.Errorf("%s: the ports are %q, and were %q", name, now, before)
		}
		box.Exec("busybox", "ping", "-c1", "-W5", "10.8.64.1")
		if _, err := w.plugged("DEL", container, "", ""); err != nil {
			t.Error(err)
		}
		w.none("after that DEL")
	}
}

// N7: a second ADD of another family leaves the address of the first where it is, and
// one that is refused leaves both leases.
func TestN7OtherFamilyKeepsItsAddress(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "10.8.64.0/24", v6More)
	for container, families := range map[string][]string{"c1": {"v4", "v6"}, "c2": {"v6", "v4"}, "c3": {"dual", "v4"}, "c4": {"v4", "dual"}, "c5": {"v6", ""}} {
		box := nstest.New(t)
		first := w.added(w.plugged("ADD", container, box.Path(), fmt.Sprintf(`, "family": %q`, families[0])))
		more := fmt.Sprintf(`, "family": %q`, families[1])
		if _, err := w.plugged("ADD", container, box.Path(), more, "CNI_ARGS=MAC=pear"); code(err) != types.ErrInvalidEnvironmentVariables {
			t.Errorf("%s: a MAC that is none: %v", container, err)
		}
		out, err := w.plugged("ADD", container, box.Path(), more)
		second := w.added(out, err)
		if len(second.IPs) != 2 || second.Interfaces[2].Mac != first.Interfaces[2].Mac {
			t.Errorf("%s: added as %+v, and before as %+v", container, second, first)
		}
		has := box.Exec("ip", "-br", "addr", "show", "dev", "eth0")
		held := w.leases()
		for _, ip := range append(first.IPs, second.IPs...) {
			lease := slices.IndexFunc(held, func(l api.Lease) bool {
				return l.Address == ip.Address.IP.String() && l.State == api.Bound && l.Netns == box.Path()
			})
			if !strings.Contains(has, ip.Address.String()) || lease < 0 {
				t.Errorf("%s: eth0 has %s, the book %+v, and answered was %s", container, has, held, ip.Address.String())
			}
		}
		if _, err := w.plugged("CHECK", container, box.Path(), more+`, "prevResult": `+out); err != nil {
			t.Errorf("%s: check: %v", container, err)
		}
		if _, err := w.plugged("DEL", container, "", ""); err != nil {
			t.Error(err)
		}
	}
	w.none("of any family")
}

// N7: CHECK of a port that was changed.
func TestN7CheckSeesAChange(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "10.8.64.0/24", "")
	for _, change := range []string{"link set eth0 mtu 1300", "link set eth0 down", "link set eth0 address 02:00:00:00:00:77",
		"addr add 10.8.64.99/24 dev eth0", "route del default", "route replace default via 10.8.64.9"} {
		box := nstest.New(t)
		out, err := w.plugged("ADD", "c1", box.Path(), "")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.plugged("CHECK", "c1", box.Path(), `, "prevResult": `+out); err != nil {
			t.Errorf("before ip %s: %v", change, err)
		}
		box.Exec(append([]string{"ip"}, strings.Fields(change)...)...)
		if _, err := w.plugged("CHECK", "c1", box.Path(), `, "prevResult": `+out); code(err) != codeLost {
			t.Errorf("after ip %s: %v", change, err)
		}
		if _, err := w.plugged("DEL", "c1", "", ""); err != nil {
			t.Error(err)
		}
	}
}

// N7: a gateway or an MTU that has changed is the container's once it is added again; until then
// CHECK finds it as ADD has left it.
func TestN7GatewayOfBefore(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "10.8.64.0/24", "")
	box := nstest.New(t)
	first, err := w.plugged("ADD", "c1", box.Path(), "")
	w.added(first, err)
	if _, err := w.client.ApplyPool(t.Context(), "default", api.PoolRequest{Prefix: "10.8.64.0/24", Gateway: "10.8.64.254", MTU: 1400}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.plugged("CHECK", "c1", box.Path(), `, "prevResult": `+first); err != nil {
		t.Errorf("check of what ADD made, as the pool was: %v", err)
	}
	out, err := w.plugged("ADD", "c1", box.Path(), `, "dns": {"nameservers": ["10.8.64.53"]}`)
	w.added(out, err)
	if !strings.Contains(out, "10.8.64.53") {
		t.Errorf("the list's name server is not answered: %s", out)
	}
	if has := box.Exec("ip", "route"); !strings.Contains(has, "via 10.8.64.254") || strings.Contains(has, "via 10.8.64.1 ") {
		t.Errorf("answered was %s, and there are\n%s", out, has)
	}
	if _, err := w.plugged("CHECK", "c1", box.Path(), `, "prevResult": `+out); err != nil {
		t.Errorf("check: %v", err)
	}
}

// N7: of two networks of one container the first has the default route.
func TestN7SecondNetwork(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "10.8.64.0/24", v6More)
	box := nstest.New(t)
	call := func(verb, network, ifname, more string) (string, error) {
		conf := fmt.Sprintf(`{"cniVersion": "1.1.0", "name": %q, "type": "ipamd", "family": "dual", "socket": %q%s}`, network, w.socket, more)
		return w.plugin(verb, conf, "CNI_CONTAINERID=c1", "CNI_NETNS="+box.Path(), "CNI_IFNAME="+ifname)
	}
	ends := map[string]string{"first": "eth0", "second": "eth1"}
	for _, network := range []string{"first", "second", "first", "second"} {
		out, err := call("ADD", network, ends[network], "")
		w.added(out, err)
		if _, err := call("CHECK", network, ends[network], `, "prevResult": `+out); err != nil {
			t.Errorf("check of %s: %v", network, err)
		}
	}
	if has := box.Exec("ip", "route", "show", "default"); !strings.Contains(has, "eth0") || strings.Contains(has, "eth1") {
		t.Errorf("default routes: %s", has)
	}
	box.Exec("busybox", "ping", "-c1", "-W5", "10.8.64.1")
	for network, ifname := range ends {
		if _, err := call("DEL", network, ifname, ""); err != nil {
			t.Error(err)
		}
	}
	w.none("of both networks")
}

// N5, N7: an ADD again beside the DEL of the same container: one that fails leaves no port.
func TestN7AddBesideDelLeavesNoPort(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "10.8.64.0/24", "")
	failed := 0
	for i := range 24 {
		box, container := nstest.New(t), fmt.Sprint("r", i)
		if _, err := w.plugged("ADD", container, box.Path(), ""); err != nil {
			t.Fatal(err)
		}
		deleted := make(chan error, 1)
		go func() {
			_, err := w.plugged("DEL", container, "", "")
			deleted <- err
		}()
		time.Sleep(time.Duration(i%8) * time.Millisecond)
		_, err := w.plugged("ADD", container, box.Path(), "")
		if err := <-deleted; err != nil {
			t.Error(err)
		}
		if err != nil {
			failed++
			if left := w.ports(); left != "" {
				t.Errorf("%d: the ADD failed (%v), and left %s", i, err, left)
			}
		}
		if _, err := w.plugged("DEL", container, "", ""); err != nil {
			t.Error(err)
		}
	}
	t.Logf("%d ADDs failed beside a DEL", failed)
}

// N3, N7: a main plugin is in the list itself, and collects the ports, too, also those of the
// pool that its conflist named before.
func TestN3MainPluginGC(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "10.8.64.0/24", "")
	w.mainNetwork("n", "1.1.0", "")
	var valid []types.GCAttachment
	for _, container := range []string{"valid", "stale"} {
		box := nstest.New(t)
		libcniDo(t, w, "n", w.dir+"/lost-"+container, func(cni *libcni.CNIConfig, list *libcni.NetworkConfigList) error {
			_, err := cni.AddNetworkList(context.Background(), list, &libcni.RuntimeConf{ContainerID: container, NetNS: box.Path(), IfName: "eth0"})
			return err
		})
		valid = append(valid, types.GCAttachment{ContainerID: container, IfName: "eth0"})
	}
	w.mainNetwork("n", "1.1.0", `, "pool": "another"`) // what its leases are of does not matter
	libcniDo(t, w, "n", w.dir+"/empty", func(cni *libcni.CNIConfig, list *libcni.NetworkConfigList) error {
		return cni.GCNetworkList(context.Background(), list, &libcni.GCArgs{ValidAttachments: valid[:1]})
	})
	realtest.Eventually(t, wait, "one is left", func() bool { return len(w.leases()) == 1 })
	text, _ := json.Marshal(w.leases())
	if l := w.leases()[0]; l.Sandbox != "valid" || w.ports() != l.HostInterface {
		t.Errorf("left are %s, ports %s", text, w.ports())
	}
}
