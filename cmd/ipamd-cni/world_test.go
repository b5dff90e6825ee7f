package main

import (
	"bytes"
	"crypto/sha512"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/client"
	"github.com/ipamd/ipamd/internal/nstest"
	"github.com/ipamd/ipamd/internal/realtest"
)

// wait bounds what has no time of its own.
const wait = time.Minute

// A world is a runner with ipamd as it is shipped, and the plugins of CNI beside it.
type world struct {
	t      *testing.T
	ns     *nstest.NS
	dir    string // short: a unix socket is in it
	bin    string // folder of the plugins
	conf   string // of the networks
	socket string
	client *client.Client
	log    *bytes.Buffer
	daemon *exec.Cmd
	mounts int // process whose mounts the runner has; 0: the test's own
}

// A runner's addresses come back at once, and who is gone is missed soon. More of the
// configuration may follow.
const configuration = `
[book]
path = '%[1]s/book.db'
[socket]
path = '%[1]s/s'
group = ''
[[pool]]
name = 'default'
prefix = '%[2]s'
[bridge]
manage = true
[allocation]
cooldown = '200ms'
cooldown_min = '100ms'
exhausted = 'strict'
[runtime]
kind = 'none'
[reconcile]
every = '50ms'
misses = 3
age = '300ms'
[probe]
window = '20ms'
%[3]s`

// newWorld starts a runner. What it has is of the test: no two share a name.
func newWorld(t *testing.T, prefix, more string) *world {
	t.Helper()
	w := prepare(t, prefix, more)
	w.start()
	return w
}

// prepare makes a runner without a running daemon.
func prepare(t *testing.T, prefix, more string) *world {
	t.Helper()
	realtest.Root(t)
	realtest.Need(t, "nsenter", "ip")
	built := filepath.Join(realtest.Checkout(t), ".cache", "cni")
	if _, err := os.Stat(filepath.Join(built, "cnitool")); err != nil {
		realtest.Lack(t, "needs cnitool and the reference plugins, which scripts/cni builds")
	}
	dir, err := os.MkdirTemp("", "cni-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	w := &world{t: t, ns: nstest.New(t), dir: dir, bin: filepath.Join(dir, "bin"), conf: filepath.Join(dir, "net.d"),
		socket: filepath.Join(dir, "s"), log: new(bytes.Buffer)}
	for _, d := range []string{w.bin, w.conf} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, program := range map[string]string{"ipamd": realtest.Program(t, "cmd/ipamd-cni"),
		"bridge": filepath.Join(built, "bridge"), "host-local": filepath.Join(built, "host-local"), "cnitool": filepath.Join(built, "cnitool")} {
		if err := os.Symlink(program, filepath.Join(w.bin, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "ipamd.toml"), fmt.Appendf(nil, configuration, dir, prefix, more), 0o600); err != nil {
		t.Fatal(err)
	}
	w.client = &client.Client{Socket: w.socket}
	t.Cleanup(func() {
		w.stop()
		w.client.CloseIdleConnections()
		if t.Failed() {
			message := w.log.Bytes()
			t.Logf("ipamd said at the end:\n%s", message[max(0, len(message)-8000):])
		}
	})
	return w
}

// edit changes the configuration of the daemon that starts next.
func (w *world) edit(from, to string) {
	w.t.Helper()
	file := filepath.Join(w.dir, "ipamd.toml")
	text, err := os.ReadFile(file)
	if err == nil {
		err = os.WriteFile(file, bytes.Replace(text, []byte(from), []byte(to), 1), 0o600)
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

// ownMounts gives the runner mounts of its own, where /run/netns is as `ip netns` and podman
// make it: a mount that is shared. They make it so where it is not, below the names of every
// test that runs, none of which could be removed then.
func (w *world) ownMounts() {
	w.t.Helper()
	realtest.Need(w.t, "unshare")
	holder := exec.Command("unshare", "-m", "sh", "-c", "mount -t tmpfs none /run/netns && mount --make-shared /run/netns && echo && exec sleep 1000000")
	ready, err := holder.StdoutPipe()
	if err == nil {
		err = holder.Start()
	}
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		w.stop() // its mounts end after it
		_ = holder.Process.Kill()
		_ = holder.Wait()
	})
	if _, err := ready.Read(make([]byte, 1)); err != nil {
		w.t.Fatalf("make mounts: %v", err)
	}
	w.mounts = holder.Process.Pid
}

func (w *world) start() {
	w.t.Helper()
	w.daemon = w.command(nil, realtest.Program(w.t, "cmd/ipamd"), "run", "--config", filepath.Join(w.dir, "ipamd.toml"))
	w.daemon.Stdout, w.daemon.Stderr = w.log, w.log
	if err := w.daemon.Start(); err != nil {
		w.t.Fatal(err)
	}
	realtest.Eventually(w.t, wait, "ipamd is ready", func() bool {
		_, err := w.client.Ready(w.t.Context())
		return err == nil
	})
}

// stop ends the daemon in order; twice is fine.
func (w *world) stop() {
	if w.daemon == nil {
		return
	}
	_ = w.daemon.Process.Signal(syscall.SIGTERM)
	if err := w.daemon.Wait(); err != nil {
		w.t.Errorf("ipamd did not end in order: %v", err)
	}
	w.daemon = nil
}

// network writes a list of plugins: the reference bridge with ipamd below it.
func (w *world) network(name, version, ipam string, after ...string) {
	w.t.Helper()
	plugins := append([]string{fmt.Sprintf(`{"type": "bridge", "bridge": "rt0", "capabilities": {"ips": true}, "ipam": {"type": "ipamd", "socket": %q%s}}`, w.socket, ipam)}, after...)
	w.write(name, version, plugins...)
}

func (w *world) write(name, version string, plugins ...string) {
	w.t.Helper()
	text := fmt.Sprintf(`{"cniVersion": %q, "name": %q, "plugins": [%s]}`, version, name, strings.Join(plugins, ", "))
	if err := os.WriteFile(filepath.Join(w.conf, name+".conflist"), []byte(text), 0o644); err != nil {
		w.t.Fatal(err)
	}
}

// cnitool runs the tool as it is. An error is the plugin's own, where it printed one.
func (w *world) cnitool(verb, network, netns string, env ...string) (string, error) {
	// What it remembers of an ADD is in one folder for all, until DEL.
	id := sha512.Sum512([]byte(netns))
	w.t.Cleanup(func() { _ = os.Remove(fmt.Sprintf("/var/lib/cni/results/%s-cnitool-%x-eth0", network, id[:10])) })
	return run(w.command(env, filepath.Join(w.bin, "cnitool"), verb, network, netns), "")
}

// plugin calls a plugin as libcni does, with a configuration on its standard input.
func (w *world) plugin(verb, conf string, env ...string) (string, error) {
	return run(w.command(append([]string{"CNI_COMMAND=" + verb}, env...), filepath.Join(w.bin, "ipamd")), conf)
}

func (w *world) command(env []string, args ...string) *exec.Cmd {
	enter := []string{"--net=" + w.ns.Path()}
	if w.mounts != 0 {
		enter = append(enter, fmt.Sprintf("--mount=/proc/%d/ns/mnt", w.mounts))
	}
	cmd := exec.Command("nsenter", append(enter, args...)...)
	cmd.Env = append(append(os.Environ(), "CNI_PATH="+w.bin, "NETCONFPATH="+w.conf), env...)
	return cmd
}

func run(cmd *exec.Cmd, stdin string) (string, error) {
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &errs
	err := cmd.Run()
	if err == nil {
		return out.String(), nil
	}
	message := new(types.Error)
	if json.Unmarshal(out.Bytes(), message) == nil && message.Code != 0 {
		return out.String(), message
	}
	return out.String(), fmt.Errorf("%w: %s%s", err, &out, &errs)
}

// added reads an ADD's result, of any version.
func (w *world) added(out string, err error) *types100.Result {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
	r := new(types100.Result)
	if err := json.Unmarshal([]byte(out), r); err != nil {
		w.t.Fatalf("%v in %s", err, out)
	}
	return r
}

// code is that of a plugin's error, 0 of any other.
func code(err error) uint {
	if e, is := err.(*types.Error); is {
		return e.Code
	}
	return 0
}

// leases are those that are held.
func (w *world) leases() (out []api.Lease) {
	w.t.Helper()
	list, err := w.client.Leases(w.t.Context(), client.LeaseFilter{})
	if err != nil {
		w.t.Fatal(err)
	}
	for _, l := range list.Leases {
		if l.State != api.Cooling {
			out = append(out, l)
		}
	}
	return out
}

// none waits until no address is held, and none is waited for.
func (w *world) none(when string) {
	w.t.Helper()
	defer func() { // what is left says why
		for _, l := range w.leases() {
			now, err := w.client.Lease(w.t.Context(), l.ID)
			w.t.Logf("left %s: %+v, %v", when, now, err)
		}
	}()
	realtest.Eventually(w.t, wait, "no lease is left "+when, func() bool { return len(w.leases()) == 0 })
}

// addressOf is the first address of an ADD's result.
func addressOf(out string) (string, error) {
	r := new(types100.Result)
	if err := json.Unmarshal([]byte(out), r); err != nil || len(r.IPs) == 0 {
		return "", fmt.Errorf("no address in %s: %w", out, err)
	}
	return r.IPs[0].Address.IP.String(), nil
}
