package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/types"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/internal/nstest"
	"github.com/ipamd/ipamd/internal/realtest"
	"github.com/ipamd/ipamd/plumb"
)

// N1, N3: an attachment that was made before its list was edited comes down by the list as it is
// now, by DEL and by GC, though nothing can be added by that list.
func TestN1AnEditedListIsTakenDown(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "10.8.64.0/24", "")
	below := func(ipam string) {
		w.network("below", "1.1.0", ipam, `{"type": "ipamd", "gc": true, "socket": "`+w.socket+`"}`)
	}
	alone := func(more string) { w.mainNetwork("alone", "1.1.0", more) }
	below("")
	alone("")
	add := func(network, container string) error {
		box := nstest.New(t)
		return libcniDoes(t, w, network, filepath.Join(w.dir, "cache-"+container), func(cni *libcni.CNIConfig, list *libcni.NetworkConfigList) error {
			_, err := cni.AddNetworkList(context.Background(), list, &libcni.RuntimeConf{ContainerID: container, NetNS: box.Path(), IfName: "eth0"})
			return err
		})
	}
	del := func(network, container string) error {
		return libcniDoes(t, w, network, filepath.Join(w.dir, "cache-"+container), func(cni *libcni.CNIConfig, list *libcni.NetworkConfigList) error {
			return cni.DelNetworkList(context.Background(), list, &libcni.RuntimeConf{ContainerID: container, IfName: "eth0"})
		})
	}
	for _, network := range []string{"below", "alone"} {
		for _, by := range []string{"-del", "-gc"} {
			if err := add(network, network+by); err != nil {
				t.Fatal(err)
			}
		}
	}
	below(`, "subnet": "10.8.64.0/24", "family": "ipx", "wait": "soon"`)
	alone(`, "vlan": 7, "family": 4`)
	for network, says := range map[string]string{"below": "ipam.subnet", "alone": "family is a number"} {
		if err := add(network, network+"-new"); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: added by a list with an unknown key: %v", network, err)
		}
		if err := del(network, network+"-del"); err != nil {
			t.Errorf("%s: del by the list as it is now: %v", network, err)
		}
		if held := w.heldBy(network + "-del"); held != "" && held != string(api.Releasing) {
			t.Errorf("%s: after del the lease is %s", network, held)
		}
		err := libcniDoes(t, w, network, w.dir+"/empty", func(cni *libcni.CNIConfig, list *libcni.NetworkConfigList) error {
			return cni.GCNetworkList(context.Background(), list, &libcni.GCArgs{ValidAttachments: []types.GCAttachment{}})
		})
		if err != nil {
			t.Errorf("%s: gc by the list as it is now: %v", network, err)
		}
	}
	if left := w.ports(); strings.Contains(left, plumb.HostName(owner{"alone", "alone-del", "eth0"}.plug())) || strings.Contains(left, plumb.HostName(owner{"alone", "alone-gc", "eth0"}.plug())) {
		t.Errorf("left are the ports %s", left)
	}
	realtest.Eventually(t, wait, "what ipamd made itself is confirmed", func() bool { return w.heldBy("alone-del")+w.heldBy("alone-gc") == "" })
	if held := w.heldBy("below-gc"); held != "" && held != string(api.Releasing) {
		t.Errorf("after gc the lease is %s", held)
	}

	// A GC whose list of what is valid cannot be read collects nothing.
	alone("")
	if err := add("alone", "stays"); err != nil {
		t.Fatal(err)
	}
	for _, valid := range []string{`"all"`, `[{"containerID": 7}]`, `{}`} {
		conf := fmt.Sprintf(`{"cniVersion": "1.1.0", "name": "alone", "type": "ipamd", "socket": %q, "cni.dev/valid-attachments": %s}`, w.socket, valid)
		if _, err := w.plugin("GC", conf); code(err) != types.ErrDecodingFailure || !strings.Contains(err.Error(), "cni.dev/valid-attachments") {
			t.Errorf("gc with valid attachments %s: %v", valid, err)
		}
	}
	if held := w.heldBy("stays"); held != string(api.Bound) {
		t.Errorf("after a GC that could not be read the lease is %q", held)
	}
	// A link of another by the port's name is not in the way of a DEL, and stays.
	w.ns.Exec("ip", "link", "add", plumb.HostName(owner{"n", "foreign", "eth0"}.plug()), "type", "bridge")
	if _, err := w.plugged("DEL", "foreign", "", ""); err != nil {
		t.Errorf("del beside a link of another: %v", err)
	}
	w.ns.Exec("ip", "link", "show", plumb.HostName(owner{"n", "foreign", "eth0"}.plug()))
}

// heldBy is the state of a container's lease, "" where it holds none.
func (w *world) heldBy(container string) string {
	w.t.Helper()
	for _, l := range w.leases() {
		if l.Sandbox == container {
			return string(l.State)
		}
	}
	return ""
}

// N1: what a runtime gives of a capability that ipamd does not have is refused by its name, and
// nothing is reserved; what is the main plugin's is left to it, and what no list declares does not
// reach ipamd.
func TestN1CapabilitiesThatIpamdLacks(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "10.8.64.0/24", "")
	given := map[string]any{
		"ips": []string{"10.8.64.77"}, "mac": "02:00:00:00:77:07", "ipRanges": [][]map[string]string{{{"subnet": "10.8.64.0/28"}}},
		"dns": map[string][]string{"servers": {"10.8.64.53"}}, "portMappings": []map[string]any{{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}},
		"bandwidth": map[string]int{"ingressRate": 1000000}, "aliases": []string{"web"}, "cgroupPath": "/a",
	}
	add := func(network string) error {
		box := nstest.New(t)
		conf := &libcni.RuntimeConf{ContainerID: "c-" + network, NetNS: box.Path(), IfName: "eth0", CapabilityArgs: given}
		return libcniDoes(t, w, network, filepath.Join(w.dir, "cache-"+network), func(cni *libcni.CNIConfig, list *libcni.NetworkConfigList) error {
			if _, err := cni.AddNetworkList(context.Background(), list, conf); err != nil {
				return err
			}
			return cni.CheckNetworkList(context.Background(), list, conf)
		})
	}
	declares := func(all ...string) string {
		return `"capabilities": {"` + strings.Join(all, `": true, "`) + `": true}`
	}
	for name, c := range map[string]struct {
		plugins []string
		says    string // "": it succeeds
	}{
		"alone":     {[]string{`{"type": "ipamd", "socket": "%s", ` + declares("ips", "mac") + `}`}, ""},
		"silent":    {[]string{`{"type": "ipamd", "socket": "%s"}`}, ""},
		"dns":       {[]string{`{"type": "ipamd", "socket": "%s", ` + declares("ips", "dns") + `}`}, "runtimeConfig.dns"},
		"ports":     {[]string{`{"type": "ipamd", "socket": "%s", ` + declares("portMappings") + `}`}, "runtimeConfig.portMappings"},
		"bandwidth": {[]string{`{"type": "ipamd", "socket": "%s", ` + declares("bandwidth", "ips") + `}`}, "runtimeConfig.bandwidth"},
		"bridge":    {[]string{`{"type": "bridge", "bridge": "rt0", "ipam": {"type": "ipamd", "socket": "%s"}, ` + declares("mac", "aliases", "dns") + `}`}, ""},
		"ranges":    {[]string{`{"type": "bridge", "bridge": "rt0", "ipam": {"type": "ipamd", "socket": "%s"}, ` + declares("ips", "ipRanges") + `}`}, "runtimeConfig.ipRanges"},
		"collects":  {[]string{`{"type": "bridge", "bridge": "rt0", "ipam": {"type": "ipamd", "socket": "%s"}}`, `{"type": "ipamd", "gc": true, ` + declares("portMappings") + `}`}, "runtimeConfig.portMappings"},
	} {
		for i, p := range c.plugins {
			c.plugins[i] = strings.ReplaceAll(p, "%s", w.socket)
		}
		w.write(name, "1.1.0", c.plugins...)
		err := add(name)
		if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %q", name, err, c.says)
		}
		// Behind another plugin it is refused once that has been answered an address, which DEL releases.
		if held := w.heldBy("c-" + name); len(c.plugins) == 1 && (held == string(api.Bound)) != (c.says == "") {
			t.Errorf("%s: the lease is %q", name, held)
		}
		if err := libcniDoes(t, w, name, filepath.Join(w.dir, "cache-"+name), func(cni *libcni.CNIConfig, list *libcni.NetworkConfigList) error {
			return cni.DelNetworkList(context.Background(), list, &libcni.RuntimeConf{ContainerID: "c-" + name, IfName: "eth0", CapabilityArgs: given})
		}); err != nil {
			t.Errorf("%s: del: %v", name, err)
		}
		_ = os.Remove(filepath.Join(w.conf, name+".conflist"))
	}
}
