package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/ipamd/ipamd/client"
	"github.com/ipamd/ipamd/internal/ctrdtest"
	"github.com/ipamd/ipamd/internal/nstest"
	"github.com/ipamd/ipamd/internal/realtest"
)

const wait = time.Minute

// A world is a runner: a network namespace, a containerd, and ipamd as users
// run it, with the bridge that it makes.
type world struct {
	*Runtime
	ns   *nstest.NS
	ctrd *ctrdtest.Daemon
	dir  string
}

func newWorld(t *testing.T, ctrd *ctrdtest.Daemon, program string) *world {
	t.Helper()
	// Not t.TempDir: a unix socket's path ends at 107 bytes.
	dir, err := os.MkdirTemp("", "sandboxtest-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	w := &world{ns: nstest.New(t), ctrd: ctrd, dir: dir}
	cfg := Config{
		Containerd: ctrd.Address,
		Namespace:  filepath.Base(dir), // runc's state is by namespace, whichever containerd it is
		Socket:     filepath.Join(dir, "s"),
		Rootfs:     filepath.Join(dir, "rootfs"),
		Cgroup:     "/" + filepath.Base(filepath.Dir(ctrd.Address)), // which ctrdtest clears
	}
	t.Cleanup(func() { os.RemoveAll("/run/containerd/runc/" + cfg.Namespace) })
	w.startDaemon(t, program, cfg.Socket)
	w.Runtime = w.open(t, cfg)
	return w
}

func (w *world) open(t *testing.T, cfg Config) *Runtime {
	t.Helper()
	r, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return r
}

func (w *world) startDaemon(t *testing.T, program, socket string) {
	t.Helper()
	config := filepath.Join(w.dir, "ipamd.toml")
	text := fmt.Sprintf(`[book]
path = '%s/book.db'
[socket]
path = '%s'
group = ''
[bridge]
manage = true
[runtime]
address = '%s'
`, w.dir, socket, w.ctrd.Address)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, "run", "--config", config)
	log := new(strings.Builder)
	cmd.Stdout, cmd.Stderr = log, log
	var err error
	w.ns.Do(func() { err = cmd.Start() })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		if err := cmd.Wait(); err != nil {
			t.Errorf("ipamd did not end in order: %v", err)
		}
		if t.Failed() {
			t.Logf("ipamd said:\n%s", log)
		}
	})
	ask := &client.Client{Socket: socket}
	t.Cleanup(ask.CloseIdleConnections)
	realtest.Eventually(t, wait, "ipamd is ready", func() bool {
		_, err := ask.Ready(t.Context())
		return err == nil
	})
}

// run starts a sandbox on a thread inside the world's network namespace.
func (w *world) run(t *testing.T, r *Runtime, name string, args ...string) (err error) {
	t.Helper()
	w.ns.Do(func() { _, err = r.Run(t.Context(), name, args) })
	return err
}

func (w *world) remove(t *testing.T, ctx context.Context, name string) (err error) {
	t.Helper()
	w.ns.Do(func() { _, err = w.Remove(ctx, name) })
	return err
}

// ports lists the ports of the bridge.
func (w *world) ports(t *testing.T) (names []string) {
	t.Helper()
	bridge, err := w.ns.Netlink().LinkByName("rt0")
	if err != nil {
		t.Fatal(err)
	}
	links, err := w.ns.Netlink().LinkList()
	for errors.Is(err, netlink.ErrDumpInterrupted) {
		links, err = w.ns.Netlink().LinkList()
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range links {
		if l.Attrs().MasterIndex == bridge.Attrs().Index {
			names = append(names, l.Attrs().Name)
		}
	}
	return names
}

// traces lists what there is of a sandbox: in containerd, among the network
// namespaces, in the book.
func (w *world) traces(t *testing.T, name string) (found []string) {
	t.Helper()
	all, err := w.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range all {
		if s.Name == name {
			found = append(found, "container")
		}
	}
	if _, err := os.Lstat(netnsPath(name)); err == nil {
		found = append(found, "netns")
	}
	held, err := w.held(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range held {
		found = append(found, "lease "+string(l.State))
	}
	return found
}

// leaves waits until those traces are all that is left of a sandbox: a lease that
// was released stays until ipamd has seen that the rest is gone.
func (w *world) leaves(t *testing.T, name string, traces ...string) {
	t.Helper()
	realtest.Eventually(t, wait, fmt.Sprintf("no more than %q of %s", traces, name), func() bool {
		return slices.Equal(w.traces(t, name), traces)
	})
}

// A cut is a way to ipamd on which chosen replies get lost: the request
// arrives, its answer does not.
func (w *world) cut(t *testing.T, lost func(*http.Request) bool) (socket string) {
	t.Helper()
	socket = filepath.Join(w.dir, "cut"+rand.Text()[:6])
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	way := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: "ipamd"})
	way.Transport = &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
		return net.Dial("unix", w.cfg.Socket)
	}, DisableKeepAlives: true}
	way.ModifyResponse = func(reply *http.Response) error {
		if lost(reply.Request) {
			panic(http.ErrAbortHandler)
		}
		return nil
	}
	s := &http.Server{Handler: way}
	go s.Serve(l)
	t.Cleanup(func() { s.Close() })
	return socket
}
