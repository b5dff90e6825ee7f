package main

import (
	"context"
	"strings"
	"testing"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/types"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/internal/nstest"
	"github.com/ipamd/ipamd/internal/realtest"
)

// N3: GC, as libcni asks for it, releases exactly what the runtime does not name of that
// network, and only once nothing of its workload is left. N7: it reaches plugins of the list
// only, so ipamd is in it beside the bridge that it is below.
func TestN3GC(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "10.8.64.0/24", "[watchdog]\nreleasing_max = '1h'\n")
	collects := `{"type": "ipamd", "gc": true, "socket": "` + w.socket + `"}`
	w.network("a", "1.1.0", "", collects)
	w.network("b", "1.1.0", "", collects)
	w.network("no-gc", "1.1.0", "") // nothing in its list collects

	// Attachments that no cache of libcni has, as after a runtime that lost its memory.
	add := func(network, container string) (box *nstest.NS, at types.GCAttachment) {
		box = nstest.New(t)
		libcniDo(t, w, network, w.dir+"/lost-"+container, func(cni *libcni.CNIConfig, list *libcni.NetworkConfigList) error {
			_, err := cni.AddNetworkList(context.Background(), list, &libcni.RuntimeConf{ContainerID: container, NetNS: box.Path(), IfName: "eth0"})
			return err
		})
		return box, types.GCAttachment{ContainerID: container, IfName: "eth0"}
	}
	_, valid := add("a", "valid")
	stale, _ := add("a", "stale")
	add("b", "other")
	add("no-gc", "quiet")
	own, err := w.client.Allocate(t.Context(), api.AllocateRequest{Sandbox: "runtimes-own"})
	if err != nil {
		t.Fatal(err)
	}
	gc := func(network string, args *libcni.GCArgs) {
		t.Helper()
		libcniDo(t, w, network, w.dir+"/empty", func(cni *libcni.CNIConfig, list *libcni.NetworkConfigList) error {
			return cni.GCNetworkList(context.Background(), list, args)
		})
	}
	states := func() string {
		var out []string
		for _, l := range w.leases() {
			out = append(out, l.Sandbox+":"+string(l.State))
		}
		return strings.Join(out, " ")
	}
	all := "valid:bound stale:bound other:bound quiet:bound runtimes-own:reserved"
	gc("a", nil) // what is gone is not said
	if got := states(); got != all {
		t.Fatalf("after a GC that names nothing: %s, want %s", got, all)
	}
	gc("a", &libcni.GCArgs{ValidAttachments: []types.GCAttachment{valid}})
	if got := states(); got != strings.Replace(all, "stale:bound", "stale:releasing", 1) {
		t.Fatalf("while the container that was collected lives: %s", got)
	}
	stale.Delete()
	realtest.Eventually(t, wait, "what was collected is confirmed", func() bool { return !strings.Contains(states(), "stale") })
	gc("no-gc", &libcni.GCArgs{})
	gc("b", &libcni.GCArgs{}) // none is valid
	want := "valid:bound other:releasing quiet:bound runtimes-own:reserved"
	if got := states(); got != want {
		t.Errorf("left are %s, want %s", got, want)
	}
	if now, err := w.client.Lease(t.Context(), own.Leases[0].ID); err != nil || now.Lease.State != api.Reserved {
		t.Errorf("a lease that no network has: %+v, %v", now, err)
	}

	// In the list ipamd does nothing else.
	for verb, says := range map[string]string{"ADD": "prevResult", "DEL": "", "STATUS": "", "CHECK": ""} {
		_, err := w.plugin(verb, `{"cniVersion": "1.1.0", "name": "a", "type": "ipamd", "gc": true}`,
			"CNI_CONTAINERID=valid", "CNI_NETNS="+stale.Path()+"x", "CNI_IFNAME=eth0")
		if says == "" && err != nil || says != "" && (code(err) != types.ErrInvalidNetworkConfig || !strings.Contains(err.Error(), says)) {
			t.Errorf("%s: %v", verb, err)
		}
	}
	for key, says := range map[string]string{`"gc": true, "ipam": {}`: "ipam", `"bridge": "rt0"`: "bridge", `"gc": true, "mtu": 9000`: "mtu"} {
		if _, err := w.plugin("STATUS", `{"cniVersion": "1.1.0", "name": "a", "type": "ipamd", `+key+`}`); code(err) != types.ErrInvalidNetworkConfig || !strings.HasPrefix(err.Error(), says) {
			t.Errorf("%s: %v", key, err)
		}
	}
}

// libcniDo has libcni do something that has to succeed.
func libcniDo(t *testing.T, w *world, network, cache string, do func(*libcni.CNIConfig, *libcni.NetworkConfigList) error) {
	t.Helper()
	if err := libcniDoes(t, w, network, cache, do); err != nil {
		t.Fatal(err)
	}
}

// libcniDoes has libcni do something in the runner's namespace, with a cache of its own.
func libcniDoes(t *testing.T, w *world, network, cache string, do func(*libcni.CNIConfig, *libcni.NetworkConfigList) error) error {
	t.Helper()
	list, err := libcni.LoadNetworkConf(w.conf, network)
	if err != nil {
		t.Fatal(err)
	}
	w.ns.Do(func() { err = do(libcni.NewCNIConfigWithCacheDir([]string{w.bin}, cache, nil), list) })
	return err
}
