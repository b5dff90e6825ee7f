package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ipamd/ipamd/internal/ctrdtest"
	"github.com/ipamd/ipamd/internal/realtest"
)

// rootfs makes the folder of a container: a static busybox under the names that tests call.
func rootfs(t *testing.T, dir string) string {
	t.Helper()
	realtest.Need(t, "busybox")
	program, err := exec.LookPath("busybox")
	if err != nil {
		t.Fatal(err)
	}
	body, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	root := filepath.Join(dir, "rootfs")
	for _, d := range []string{"bin", "dev", "etc", "proc", "sys", "run", "tmp"} {
		if err := os.MkdirAll(filepath.Join(root, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(root, "bin", "busybox"), body, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"ip", "ping", "sh", "sleep"} {
		if err := os.Symlink("busybox", filepath.Join(root, "bin", name)); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// looksAround is what a container does: it shows its address, and reaches the gateway.
const looksAround = "ip -4 addr show eth0 && ping -c1 -W5 10.8.64.1"

// whatItSaw holds a container's output against the one lease that was bound for it.
func (w *world) whatItSaw(out string, err error) {
	w.t.Helper()
	if err != nil || !strings.Contains(out, "inet 10.8.64.") || !strings.Contains(out, " 0% packet loss") {
		w.t.Errorf("the container saw %v\n%s", err, out)
	}
	w.none("after the container")
}

// N1: `ctr run --cni`, whose DEL comes without a namespace, twice of one id.
func TestN1CtrRun(t *testing.T) {
	realtest.Long(t)
	realtest.Need(t, "unshare")
	ctrdtest.Each(t, func(t *testing.T, d *ctrdtest.Daemon) {
		w := newWorld(t, "10.8.64.0/24", "")
		w.network("n", "1.0.0", "")
		ctr := "ctr"
		if d.Version == ctrdtest.V2 {
			ctr = filepath.Join(realtest.Checkout(t), ".cache", "containerd-2", "bin", "ctr")
		}
		root := rootfs(t, w.dir)
		namespace := filepath.Base(w.dir)
		// ctr knows these two folders only.
		inside := fmt.Sprintf(`mkdir -p /etc/cni /opt && mount -t tmpfs none /etc/cni && mount -t tmpfs none /opt && mkdir -p /etc/cni/net.d /opt/cni/bin &&
			cp %s/* /etc/cni/net.d && cp %s/* /opt/cni/bin && mount -t tmpfs none /var/lib && exec "$@"`, w.conf, w.bin)
		for range 2 {
			// ctr may close a container's output before it has read all of it, so it goes to a file.
			out, err := run(w.command(nil, "unshare", "-m", "sh", "-c", inside, "sh",
				ctr, "-a", d.Address, "-n", namespace, "run", "--rm", "--cni", "--env", "PATH=/bin", "--rootfs", root, "c1", "/bin/sh", "-c", "("+looksAround+") >/saw"), "")
			saw, fileErr := os.ReadFile(filepath.Join(root, "saw"))
			w.whatItSaw(out+string(saw), errors.Join(err, fileErr, os.Remove(filepath.Join(root, "saw"))))
		}
	})
}

// N1: podman, whose containers no containerd knows.
func TestN1Podman(t *testing.T) {
	realtest.Long(t)
	t.Parallel()
	realtest.Need(t, "podman", "runc", "tar")
	w := prepare(t, "10.8.64.0/24", "")
	w.ownMounts()
	w.start()
	// Both lists of the package, with Debian's own plugins of 1.1.1.
	const bridges = "/usr/lib/cni/bridge"
	realtest.Need(t, bridges)
	if err := errors.Join(os.Remove(w.bin+"/bridge"), os.Symlink(bridges, w.bin+"/bridge")); err != nil {
		t.Fatal(err)
	}
	for name, file := range map[string]string{"n": "10-sandboxes.conflist", "alone": "10-sandboxes-alone.conflist"} {
		list, err := os.ReadFile(filepath.Join(realtest.Checkout(t), "deploy", "cni", file))
		if err != nil {
			t.Fatal(err)
		}
		text := strings.ReplaceAll(string(list), `"type": "ipamd"`, fmt.Sprintf(`"type": "ipamd", "socket": %q`, w.socket))
		text = strings.Replace(text, `"name": "sandboxes"`, fmt.Sprintf(`"name": %q`, name), 1)
		if err := os.WriteFile(filepath.Join(w.conf, name+".conflist"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	podman := w.podman()
	if out, err := podman("import", w.image(), "localhost/box:1"); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	out, err := podman("run", "--rm", "--network", "n", "localhost/box:1", "sh", "-c", looksAround)
	w.whatItSaw(out, err)
	out, err = podman("run", "--rm", "--network", "alone", "localhost/box:1", "sh", "-c", looksAround)
	w.whatItSaw(out, err)
	// N6: an address that is wanted.
	out, err = podman("run", "--rm", "--network", "n", "--ip", "10.8.64.77", "localhost/box:1", "sh", "-c", looksAround)
	if w.whatItSaw(out, err); !strings.Contains(out, "inet 10.8.64.77/24") {
		t.Errorf("with --ip 10.8.64.77: %s", out)
	}
	// The runtime cannot start it: podman takes the network down all the same.
	if out, err := podman("run", "--rm", "--network", "n", "localhost/box:1", "/nobody"); err == nil {
		t.Errorf("a program that is not there: %s", out)
	}
	w.none("after a start that failed")
	// Two at once, and both are gone by force.
	for _, name := range []string{"a", "b"} {
		if out, err := podman("run", "-d", "--name", name, "--network", "n", "localhost/box:1", "sleep", "1000"); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	held := w.leases()
	if len(held) != 2 || held[0].Address == held[1].Address {
		t.Errorf("leases of two: %+v", held)
	}
	if out, err := podman("rm", "-f", "-t", "0", "a", "b"); err != nil {
		t.Errorf("%v: %s", err, out)
	}
	w.none("after rm -f")
}

// podman is that of a store of its own, with the runner's networks.
func (w *world) podman() func(args ...string) (string, error) {
	w.t.Helper()
	conf := filepath.Join(w.dir, "containers.conf")
	text := fmt.Sprintf(`[containers]
default_ulimits = ["nofile=1024:4096", "nproc=1000:1000"]
log_driver = "k8s-file"
[engine]
cgroup_manager = "cgroupfs"
events_logger = "file"
runtime = "runc"
tmp_dir = "%[1]s/ptmp"
static_dir = "%[1]s/pstatic"
volume_path = "%[1]s/pvolumes"
[network]
network_backend = "cni"
cni_plugin_dirs = ["%[1]s/bin"]
network_config_dir = "%[1]s/net.d"
default_network = "n"
`, w.dir)
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		w.t.Fatal(err)
	}
	return func(args ...string) (string, error) {
		args = append([]string{"podman", "--root", w.dir + "/proot", "--runroot", w.dir + "/prun", "--storage-driver", "vfs"}, args...)
		return run(w.command([]string{"CONTAINERS_CONF=" + conf}, args...), "")
	}
}

// image is a file of what a container has.
func (w *world) image() string {
	w.t.Helper()
	tar := filepath.Join(w.dir, "image.tar")
	if out, err := exec.Command("tar", "-C", rootfs(w.t, w.dir), "-cf", tar, ".").CombinedOutput(); err != nil {
		w.t.Fatalf("%v: %s", err, out)
	}
	return tar
}
