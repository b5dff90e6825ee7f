package docker_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
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

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/client"
	"github.com/ipamd/ipamd/internal/nstest"
	"github.com/ipamd/ipamd/internal/realtest"
)

var ctx = context.Background()

// patience is how long a test waits for what does not depend on how fast it comes.
const patience = 60 * time.Second

// configuration of an ipamd that confirms what is removed soon.
const configuration = `
[book]
path = '%[1]s/book.db'
[socket]
path = '%[1]s/ipamd.sock'
group = ''
[runtime]
kind = 'none'
[allocation]
cooldown = '1h'
cooldown_min = '1m'
[reconcile]
every = '1s'
misses = 2
age = '3s'
`

// A world is a network namespace with rt0, in which ipamd, its Docker driver and a dockerd run.
type world struct {
	t      testing.TB
	ns     *nstest.NS
	dir    string
	driver string // its name for Docker
	client *client.Client

	ipamd, plugin, containerd, dockerd *process
	all                                []*process
}

// newWorld starts all three, ipamd with more configuration, in which %[1]s is the folder of all.
func newWorld(t testing.TB, more ...string) *world {
	t.Helper()
	realtest.Root(t)
	realtest.Need(t, "nsenter", "containerd", "dockerd", "/usr/bin/docker", "busybox")
	dir, err := os.MkdirTemp("", "docker-") // a socket's path ends at 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, dir: dir, ns: nstest.New(t), driver: "ipamd-" + filepath.Base(dir), client: &client.Client{Socket: filepath.Join(dir, "ipamd.sock")}}
	t.Cleanup(w.clean)
	w.ns.Bridge("rt0", "10.8.64.1/24")
	w.write("ipamd.toml", fmt.Sprintf(configuration+strings.Join(more, ""), dir))
	w.startIpamd()
	w.startDriver()
	w.startContainerd()
	w.startDockerd()
	w.image()
	return w
}

func (w *world) write(name, text string) string {
	w.t.Helper()
	path := filepath.Join(w.dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		w.t.Fatal(err)
	}
	return path
}

func (w *world) pluginSocket() string { return "/run/docker/plugins/" + w.driver + ".sock" }

func (w *world) startIpamd() {
	w.ipamd = w.run(realtest.Program(w.t, "cmd/ipamd"), "run", "--config", filepath.Join(w.dir, "ipamd.toml"))
	realtest.Eventually(w.t, patience, "ipamd to be ready", func() bool { _, err := w.client.Ready(ctx); return err == nil || w.ipamd.over() })
}

func (w *world) startDriver() {
	w.plugin = w.run(realtest.Program(w.t, "cmd/ipamd"), "docker", "--listen", w.pluginSocket(), "--socket", filepath.Join(w.dir, "ipamd.sock"))
	realtest.Eventually(w.t, patience, "the driver to listen", func() bool {
		c, err := net.Dial("unix", w.pluginSocket())
		if err == nil {
			c.Close()
		}
		return err == nil || w.plugin.over()
	})
}

// startContainerd starts one for dockerd. It outlives a dockerd that is killed, as it does
// where systemd runs both.
func (w *world) startContainerd() {
	at := func(name string) string { return filepath.Join(w.dir, name) }
	config := w.write("containerd.toml", fmt.Sprintf("version = 2\nroot = %q\nstate = %q\ndisabled_plugins = ['io.containerd.grpc.v1.cri']\n[grpc]\naddress = %q\n",
		at("ctr-root"), at("ctr-state"), at("ctr.sock")))
	w.containerd = w.run("containerd", "--config", config)
	realtest.Eventually(w.t, patience, "containerd to listen", func() bool { _, err := os.Stat(at("ctr.sock")); return err == nil || w.containerd.over() }) // of a folder that is new
}

// startDockerd starts a dockerd that touches nothing of the host: neither its firewall, nor
// its bridges, nor its containerd.
func (w *world) startDockerd() {
	at := func(name string) string { return filepath.Join(w.dir, name) }
	w.dockerd = w.run("dockerd", "--iptables=false", "--ip-masq=false", "--ip-forward=false", "--bridge=none", "--userland-proxy=false", "--live-restore",
		"--config-file", w.write("daemon.json", "{}"), "--data-root", at("data"), "--exec-root", at("exec"), "--pidfile", at("dockerd.pid"),
		"-H", "unix://"+at("docker.sock"), "--containerd", at("ctr.sock"), "--oom-score-adjust", "0", "--storage-driver", "vfs")
	realtest.Eventually(w.t, patience, "dockerd to answer", func() bool { _, err := w.try("version"); return err == nil || w.dockerd.over() })
}

// image makes the image "box", which is a busybox.
func (w *world) image() {
	w.t.Helper()
	root := filepath.Join(w.dir, "root")
	if err := os.MkdirAll(filepath.Join(root, "bin"), 0o755); err != nil {
		w.t.Fatal(err)
	}
	busybox, err := exec.LookPath("busybox")
	if err != nil {
		w.t.Fatal(err)
	}
	for _, args := range [][]string{{"cp", busybox, filepath.Join(root, "bin/busybox")}, {"tar", "-C", root, "-cf", filepath.Join(w.dir, "root.tar"), "."}} {
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			w.t.Fatal(string(out))
		}
	}
	w.docker("import", filepath.Join(w.dir, "root.tar"), "box")
}

// try runs Docker's own client.
func (w *world) try(args ...string) (string, error) {
	cmd := exec.Command("nsenter", append([]string{"--net=" + w.ns.Path(), "/usr/bin/docker", "-H", "unix://" + filepath.Join(w.dir, "docker.sock")}, args...)...)
	cmd.Env = append(os.Environ(), "DOCKER_CONFIG="+w.dir)
	out, err := cmd.CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

func (w *world) docker(args ...string) string {
	w.t.Helper()
	out, err := w.try(args...)
	if err != nil {
		w.t.Fatalf("docker %s: %s", strings.Join(args, " "), out)
	}
	return out
}

// refuses wants docker to fail and to say all that.
func (w *world) refuses(says []string, args ...string) {
	w.t.Helper()
	out, err := w.try(args...)
	if err == nil {
		w.t.Errorf("docker %s: was not refused: %s", strings.Join(args, " "), out)
	}
	for _, s := range says {
		if !strings.Contains(out, s) {
			w.t.Errorf("docker %s: it does not say %q: %s", strings.Join(args, " "), s, out)
		}
	}
}

// network makes a network on rt0 that has its pool.
func (w *world) network(name string, more ...string) {
	w.t.Helper()
	w.docker(append([]string{"network", "create", "--ipam-driver", w.driver, "--subnet", "10.8.64.0/24", "-o", "com.docker.network.bridge.name=rt0", name}, more...)...)
}

// sleeper runs a container that does nothing, and returns its address.
func (w *world) sleeper(name string, more ...string) string {
	w.t.Helper()
	w.docker(append(append([]string{"run", "-d", "--name", name}, more...), "box", "busybox", "sleep", "600")...)
	return w.docker("inspect", "-f", "{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}", name)
}

func (w *world) whois(addr string) *api.WhoisReply {
	w.t.Helper()
	is, err := w.client.Whois(ctx, addr)
	if err != nil {
		w.t.Fatal(err)
	}
	return is
}

// post asks the driver itself, and returns the code of its answer and all of it, which is of the
// protocol's type unless there is no such method.
func (w *world) post(path, body string) string {
	w.t.Helper()
	c := http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", w.pluginSocket())
	}, DisableKeepAlives: true}}
	r, err := c.Post("http://driver"+path, "application/json", strings.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	if is := r.Header.Get("Content-Type"); is != "application/vnd.docker.plugins.v1.1+json" && r.StatusCode != http.StatusNotFound {
		w.t.Errorf("%s: the answer %d is of type %s", path, r.StatusCode, is)
	}
	return fmt.Sprintf("%d %s", r.StatusCode, b)
}

// becomes waits for an address to be in a state.
func (w *world) becomes(addr string, want api.State) {
	w.t.Helper()
	realtest.Eventually(w.t, patience, addr+" to be "+string(want), func() bool { return w.whois(addr).State == want })
}

// clean ends everything, the containers first.
func (w *world) clean() {
	if w.dockerd != nil {
		if ids, err := w.try("ps", "-aq"); err == nil && ids != "" {
			_, _ = w.try(append([]string{"rm", "-f"}, strings.Fields(ids)...)...)
		}
	}
	for _, p := range slices.Backward(w.all) {
		if p.stop(); w.t.Failed() {
			w.t.Logf("%s said at the end:\n%s", p.name, p.message())
		}
	}
	w.client.CloseIdleConnections()
	_ = os.Remove(w.pluginSocket())
	mounts, _ := os.ReadFile("/proc/self/mountinfo")
	for line := range strings.Lines(string(mounts)) {
		if at := strings.Fields(line)[4]; strings.HasPrefix(at, w.dir+"/") {
			_ = unix.Unmount(at, unix.MNT_DETACH)
		}
	}
	if err := os.RemoveAll(w.dir); err != nil {
		w.t.Error(err)
	}
}

// A process is a program in the world's namespace.
type process struct {
	t     testing.TB
	name  string
	cmd   *exec.Cmd
	ended chan struct{}
	log   string // a file: what it leaves behind may go on writing
}

func (p *process) message() string {
	message, _ := os.ReadFile(p.log)
	return string(message[max(0, len(message)-4000):])
}

func (w *world) run(args ...string) *process {
	w.t.Helper()
	p := &process{t: w.t, name: strings.Join(args[:min(2, len(args))], " "), ended: make(chan struct{})}
	p.cmd = exec.Command("nsenter", append([]string{"--net=" + w.ns.Path()}, args...)...)
	out, err := os.CreateTemp(w.dir, "log-")
	if err != nil {
		w.t.Fatal(err)
	}
	defer out.Close()
	p.log, p.cmd.Stdout, p.cmd.Stderr = out.Name(), out, out
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := p.cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	go func() {
		defer close(p.ended)
		_ = p.cmd.Wait() // how it ended is in ProcessState
	}()
	w.all = append(w.all, p)
	return p
}

// over fails the test when the process has ended by itself.
func (p *process) over() bool {
	p.t.Helper()
	select {
	case <-p.ended:
		p.t.Fatalf("%s ended: %v\n%s", p.name, p.cmd.ProcessState, p.message())
	default:
	}
	return false
}

func (p *process) stop() { p.end(syscall.SIGTERM) }
func (p *process) kill() { p.end(syscall.SIGKILL) }

func (p *process) end(s syscall.Signal) {
	_ = p.cmd.Process.Signal(s) // it may have ended
	select {
	case <-p.ended:
	case <-time.After(patience):
		_ = p.cmd.Process.Kill()
		<-p.ended
	}
}

// ipamctl is an operator's command; it returns what is printed.
func (w *world) ipamctl(args ...string) string {
	w.t.Helper()
	out, err := exec.Command(realtest.Program(w.t, "cmd/ipamctl"), append([]string{"--socket", filepath.Join(w.dir, "ipamd.sock")}, args...)...).CombinedOutput()
	if err != nil {
		w.t.Fatalf("ipamctl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}

// portOf is the name of the bridge's port that leads into a container.
func (w *world) portOf(name string) string {
	w.t.Helper()
	index, err := strconv.Atoi(w.docker("exec", name, "busybox", "cat", "/sys/class/net/eth0/iflink"))
	if err != nil {
		w.t.Fatal(err)
	}
	link, err := w.ns.Netlink().LinkByIndex(index)
	if err != nil {
		w.t.Fatal(err)
	}
	return link.Attrs().Name
}
