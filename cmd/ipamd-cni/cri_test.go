package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/internal/realtest"
)

// A containerd as a kubelet has it, with ipamd's networks: 1.6, and 2.x.
const (
	criDebian = `version = 2
root = "%[1]s/croot"
state = "%[1]s/cstate"
disabled_plugins = ["io.containerd.internal.v1.opt", "io.containerd.internal.v1.tracing", "io.containerd.tracing.processor.v1.otlp",
  "io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.zfs"]
[grpc]
  address = "%[1]s/c.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "localhost/pause:1"
  restrict_oom_score_adj = true
  disable_apparmor = true
  stream_server_port = "0"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "%[1]s/bin"
    conf_dir = "%[1]s/net.d"
`
	criV2 = `version = 3
root = "%[1]s/croot"
state = "%[1]s/cstate"
disabled_plugins = ["io.containerd.internal.v1.opt", "io.containerd.internal.v1.tracing", "io.containerd.image-verifier.v1.bindir",
  "io.containerd.nri.v1.nri", "io.containerd.snapshotter.v1.blockfile", "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.erofs", "io.containerd.snapshotter.v1.zfs"]
[grpc]
  address = "%[1]s/c.sock"
[plugins."io.containerd.cri.v1.images".pinned_images]
  sandbox = "localhost/pause:1"
[plugins."io.containerd.cri.v1.runtime"]
  restrict_oom_score_adj = true
  disable_apparmor = true
  [plugins."io.containerd.cri.v1.runtime".cni]
    bin_dirs = ["%[1]s/bin"]
    conf_dir = "%[1]s/net.d"
[plugins."io.containerd.grpc.v1.cri"]
  stream_server_port = "0"
`
)

// N1: containerd's CRI, asked as a kubelet asks it. Its DEL comes twice, the second without a
// namespace, and its pods are removed while the daemon is not there, too.
func TestN1CRI(t *testing.T) {
	realtest.Long(t)
	t.Parallel()
	realtest.Need(t, "podman", "containerd", "ctr", "runc", "tar", "/usr/lib/cni/loopback")
	t.Run("debian", func(t *testing.T) {
		t.Parallel()
		callsCRI(t, "1.0.0", criDebian, "", false)
	})
	t.Run("v2", func(t *testing.T) {
		t.Parallel()
		bin := filepath.Join(realtest.Checkout(t), ".cache", "containerd-2", "bin")
		realtest.Need(t, bin+"/containerd", bin+"/ctr")
		callsCRI(t, "1.1.0", criV2, bin+"/", true)
	})
}

// callsCRI does so with a containerd below bin; status says whether that asks its network.
func callsCRI(t *testing.T, version, configuration, bin string, status bool) {
	caller := filepath.Join(realtest.Checkout(t), ".cache", "cni", "cri")
	realtest.Need(t, caller)
	w := prepare(t, "10.8.64.0/24", "")
	w.ownMounts()
	w.start()
	w.network("n", version, `, "wait": "200ms"`)
	if err := os.Symlink("/usr/lib/cni/loopback", w.bin+"/loopback"); err != nil {
		t.Fatal(err)
	}
	podman := w.podman()
	pause := filepath.Join(w.dir, "pause.tar")
	for _, args := range [][]string{{"import", "--change", `ENTRYPOINT ["/bin/sleep", "1000000"]`, w.image(), "localhost/pause:1"},
		{"save", "--format", "docker-archive", "-o", pause, "localhost/pause:1"}} {
		if out, err := podman(args...); err != nil {
			t.Fatalf("podman %q: %v: %s", args, err, out)
		}
	}
	file := filepath.Join(w.dir, "containerd.toml")
	if err := os.WriteFile(file, fmt.Appendf(nil, configuration, w.dir), 0o600); err != nil {
		t.Fatal(err)
	}
	log := new(bytes.Buffer)
	ctrd := w.command([]string{"PATH=" + bin + ":" + os.Getenv("PATH")}, bin+"containerd", "--config", file)
	ctrd.Stdout, ctrd.Stderr = log, log
	if err := ctrd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = ctrd.Process.Signal(syscall.SIGTERM)
		_ = ctrd.Wait()
		left, _ := filepath.Glob("/sys/fs/cgroup/*/cri-test*")
		for _, dir := range left {
			_ = os.Remove(dir) // of pods that are gone
		}
		if t.Failed() {
			t.Logf("containerd said:\n%s", log)
		}
	})
	socket := w.dir + "/c.sock"
	cri := func(args ...string) (string, error) {
		out, err := run(w.command(nil, append([]string{caller, socket}, args...)...), "")
		return strings.TrimSpace(out), err
	}
	realtest.Eventually(t, wait, "containerd answers, and its network is ready", func() bool {
		is, err := cri("status")
		return err == nil && strings.HasPrefix(is, "true")
	})
	if out, err := run(w.command(nil, bin+"ctr", "-a", socket, "-n", "k8s.io", "images", "import", pause), ""); err != nil {
		t.Fatalf("%v: %s", err, out)
	}

	var pods []string
	for _, name := range []string{"a", "b"} {
		id, err := cri("run", name)
		if err != nil {
			t.Fatalf("run %s: %v", name, err)
		}
		pods = append(pods, id)
	}
	held := w.leases()
	if len(held) != 2 {
		t.Fatalf("leases of two pods: %+v", held)
	}
	for _, l := range held {
		is, err := cri("ip", l.Sandbox)
		if err != nil || is != l.Address || l.State != api.Bound || l.HostInterface == "" || l.Labels["cni.dev/pod-namespace"] != "ns" || l.Labels["cni.dev/pod-name"] == "" {
			t.Errorf("the pod has %s, %v, and the lease is %+v", is, err, l)
		}
	}
	for _, verb := range []string{"stop", "rm"} { // a DEL each
		if _, err := cri(verb, pods[0]); err != nil {
			t.Errorf("%s: %v", verb, err)
		}
	}
	realtest.Eventually(t, wait, "one pod is left", func() bool { return len(w.leases()) == 1 })
	w.stop() // N4
	for _, verb := range []string{"stop", "rm"} {
		if _, err := cri(verb, pods[1]); err != nil {
			t.Errorf("%s without a daemon: %v", verb, err)
		}
	}
	if id, err := cri("run", "c"); err == nil || !strings.Contains(err.Error(), "is ipamd running?") {
		t.Errorf("run without a daemon: %s, %v", id, err)
	}
	if status { // N2
		realtest.Eventually(t, wait, "its network is not ready, for the plugin says so", func() bool {
			is, err := cri("status")
			return err == nil && strings.HasPrefix(is, "false") && strings.Contains(is, "is ipamd running?")
		})
	}
	w.start()
	w.none("of pods that were removed without a daemon")
	if _, err := cri("run", "c"); err != nil {
		t.Errorf("run again: %v", err)
	}
	for _, l := range w.leases() {
		for _, verb := range []string{"stop", "rm"} {
			if _, err := cri(verb, l.Sandbox); err != nil {
				t.Errorf("%s: %v", verb, err)
			}
		}
	}
	w.none("at the end")
}
