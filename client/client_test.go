package client_test

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/client"
	"github.com/ipamd/ipamd/client/answer"
	"github.com/ipamd/ipamd/internal/realtest"
	"github.com/ipamd/ipamd/server"
	"github.com/ipamd/ipamd/server/servertest"
)

func start(t *testing.T, change ...func(*server.Config)) (*servertest.Rig, *client.Client) {
	rig := servertest.Start(t, change...)
	c := &client.Client{Socket: rig.Socket}
	t.Cleanup(c.CloseIdleConnections)
	return rig, c
}

// A refusal says each thing once: what was asked, its class, and why.
func TestRefusalSaysEachThingOnce(t *testing.T) {
	rig, c := start(t)
	given, err := c.Allocate(t.Context(), api.AllocateRequest{Sandbox: "a"})
	if err != nil {
		t.Fatal(err)
	}
	l := given.Leases[0]
	if _, err := c.Release(t.Context(), l.ID, api.ReleaseRequest{}); err != nil {
		t.Fatal(err)
	}
	rig.Confirm(t, l.ID)
	_, clear := c.Clear(t.Context(), "10.8.64.7")
	_, bind := c.Bind(t.Context(), l.ID, api.BindRequest{Netns: "/n"})
	for err, want := range map[error]string{
		clear: "clear 10.8.64.7: not allowed in this state: it is not quarantined",
		bind:  "bind " + l.ID + ": 10.8.64.2: not allowed in this state: it is cooling",
		answer.Refusal("attach "+l.ID, "503 Service Unavailable", "", []byte(`{"code":"not_ready","message":"attach: not ready: ipamd-plumb does not run"}`)): "attach " + l.ID + ": not ready: ipamd-plumb does not run",
		answer.Refusal("apply a", "409 Conflict", "", []byte(`{"code":"pool_overlap","message":"pool overlaps another"}`)):                                    "apply a: pool overlaps another",
		answer.Refusal("show x", "404 Not Found", "", []byte(`{"code":"not_found","message":"nothing is found"}`)):                                            "show x: nothing is found (not_found)",
	} {
		if err == nil || err.Error() != want {
			t.Errorf("got  %v\nwant %s", err, want)
		}
	}
}

// TestEveryVerb asks each verb of the table once, through the client alone.
func TestEveryVerb(t *testing.T) {
	asked := make(map[string]api.Code)
	var mu sync.Mutex
	rig, c := start(t, func(cfg *server.Config) {
		cfg.Observe = func(verb string, code api.Code, _ time.Duration) {
			mu.Lock()
			defer mu.Unlock()
			asked[verb] = code
		}
	})
	ctx := t.Context()
	ok := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	given, err := c.Allocate(ctx, api.AllocateRequest{Sandbox: "team/x--y", UID: "1", Labels: map[string]string{"a": "b"}})
	if err != nil {
		t.Fatal(err)
	}
	l := given.Leases[0]
	bound, err := c.Bind(ctx, l.ID, api.BindRequest{Netns: "/run/netns/x", MAC: "02:42:0a:08:40:02"})
	ok("bind", err)
	if bound.Lease.State != api.Bound || bound.Lease.Labels["a"] != "b" {
		t.Errorf("bound: %+v", bound.Lease)
	}
	_, err = c.Pause(ctx, l.ID, api.PauseRequest{IfRevision: bound.Lease.Revision})
	ok("pause", err)
	woken, err := c.Wake(ctx, l.ID, api.WakeRequest{})
	ok("wake", err)
	_, err = c.AckWake(ctx, l.ID, api.AckRequest{Flight: woken.Lease.Sleep.Flight.ID, Outcome: "waking"})
	ok("wake", err)
	_, err = c.Resume(ctx, l.ID, api.PauseRequest{})
	ok("resume", err)
	plumbed := make(chan error, 1)
	begun := make(chan struct{})
	go func() {
		_, err := c.PlumbWork(ctx, api.PlumbRequest{Worker: "w"}) // it is there from now on
		close(begun)
		for range 2 {
			var work *api.PlumbReply
			if err == nil {
				work, err = c.PlumbWork(ctx, api.PlumbRequest{Worker: "w", Wait: api.Lasting(time.Minute)})
			}
			if err == nil {
				_, err = c.PlumbDone(ctx, api.PlumbDoneRequest{ID: work.ID, Host: "sb1"})
			}
		}
		plumbed <- err
	}()
	<-begun
	attached, err := c.Attach(ctx, l.ID, api.AttachRequest{Netns: "/run/netns/x"})
	ok("attach", err)
	if attached.Lease.HostInterface != "sb1" {
		t.Errorf("attached: %+v", attached.Lease)
	}
	_, err = c.Detach(ctx, l.ID, api.DetachRequest{})
	ok("detach", err)
	ok("plumb", <-plumbed)
	list, err := c.Leases(ctx, client.LeaseFilter{Sandbox: "team/x--y", State: "bound", Pool: "default"})
	ok("leases", err)
	if len(list.Leases) != 1 || list.Leases[0].ID != l.ID {
		t.Errorf("listed: %+v", list)
	}
	one, err := c.Lease(ctx, l.ID)
	ok("lease", err)
	if one.Lease.Address != l.Address {
		t.Errorf("looked up: %+v", one)
	}
	who, err := c.Whois(ctx, l.Address)
	ok("whois", err)
	if who.Owner != "team/x--y" {
		t.Errorf("whois: %+v", who)
	}
	let, err := c.Release(ctx, l.ID, api.ReleaseRequest{UID: "1", Wait: api.Lasting(time.Millisecond)})
	ok("release", err)
	if let.Lease.State != api.Releasing || len(let.Blockers) != 1 {
		t.Errorf("released: %+v", let)
	}
	rig.Confirm(t, l.ID)
	lost, err := c.Allocate(ctx, api.AllocateRequest{Sandbox: "lost"})
	ok("allocate", err)
	_, err = c.Release(ctx, lost.Leases[0].ID, api.ReleaseRequest{})
	ok("release", err)
	forced, err := c.ForceRelease(ctx, lost.Leases[0].ID, api.ForceReleaseRequest{Reason: "its containerd is lost"})
	ok("force-release", err)
	if forced.Lease.State != api.Quarantined || len(forced.Lease.Evidence) != 1 || forced.Lease.Evidence[0].Witness != "book" {
		t.Errorf("forced: %+v", forced)
	}
	_, err = c.Cancel(ctx, api.CancelRequest{UID: "2", Attempt: 1})
	ok("cancel", err)
	past, err := c.History(ctx, client.HistoryFilter{Address: l.Address, Sandbox: "team/x--y", LeaseID: l.ID,
		Since: time.Now().Add(-time.Hour), Limit: 3})
	ok("history", err)
	if len(past.Changes) != 3 || past.Changes[0].To != api.Cooling {
		t.Errorf("history: %+v", past)
	}
	for u := range c.Watch(ctx, client.WatchFilter{Epoch: past.Epoch, Since: past.Changes[0].Revision - 1}) {
		if u.Err != nil || u.Event == nil {
			t.Fatalf("watch: %+v", u)
		}
		if u.Event.Type == api.EventChange {
			if u.Event.Revision != past.Changes[0].Revision || u.Event.Change.LeaseID != past.Changes[0].LeaseID {
				t.Errorf("watch: %+v", u.Event)
			}
			break
		}
	}
	_, err = c.Quarantine(ctx, "10.8.64.9", "a printer")
	ok("quarantine", err)
	_, err = c.Clear(ctx, "10.8.64.9")
	ok("clear", err)
	_, err = c.Quarantine(ctx, "10.8.64.10", "started by hand")
	ok("quarantine", err)
	adopted, err := c.Adopt(ctx, "10.8.64.10", api.AdoptRequest{Sandbox: "by-hand", HostInterface: "veth1", Reason: "it is ours"})
	ok("adopt", err)
	if adopted.Lease.State != api.Bound || adopted.Lease.HostInterface != "veth1" {
		t.Errorf("adopted: %+v", adopted)
	}
	pass, err := c.Reconcile(ctx, api.ReconcileRequest{Preview: true})
	ok("reconcile", err)
	if !pass.Report.Preview || !pass.Report.Complete || pass.Report.Leases != 4 {
		t.Errorf("reconcile: %+v", pass)
	}
	look, err := c.AdoptBook(ctx, api.AdoptBookRequest{})
	ok("look at the book", err)
	if look.Adopted || look.Book.Epoch == "" || look.Plan == nil {
		t.Errorf("look at the book: %+v", look)
	}
	copied, err := c.Backup(ctx, api.BackupRequest{Path: filepath.Join(t.TempDir(), "backup.db")})
	ok("back up the book", err)
	if copied.Bytes == 0 || copied.Revision == 0 || copied.Epoch != look.Book.Epoch {
		t.Errorf("backup: %+v", copied)
	}
	checked, err := c.CheckBook(ctx)
	ok("check the book", err)
	if !checked.Whole || checked.Findings == nil || checked.Addresses == 0 || checked.Revision < copied.Revision || checked.Epoch != copied.Epoch {
		t.Errorf("check of the book: %+v", checked)
	}
	withheld, err := c.Withheld(ctx, "default")
	ok("withheld", err)
	if withheld.Withheld == nil {
		t.Error("no list of withheld addresses")
	}
	slots, err := c.Warm(ctx, "default")
	ok("warm", err)
	if slots.Slots == nil {
		t.Error("no list of slots")
	}
	_, err = c.Pools(ctx)
	ok("pools", err)
	pools, err := c.Pool(ctx, "default")
	ok("pool", err)
	uid := pools.Pools[0].UID
	grown, err := c.ApplyPool(ctx, "default", api.PoolRequest{Prefix: "10.8.64.0/23", Generation: 2})
	ok("apply pool", err)
	if grown.Change != api.PoolUpdate || grown.Pool.Generation != 2 {
		t.Errorf("grown: %+v", grown)
	}
	if _, err = c.ApplyPool(ctx, "default", api.PoolRequest{Prefix: "10.8.64.0/24", Generation: 2}); !errors.Is(err, client.ErrStaleGeneration) {
		t.Errorf("an old generation: %v", err)
	}
	if _, err = c.ApplyPool(ctx, "second", api.PoolRequest{Prefix: "10.8.65.0/24"}); !errors.Is(err, client.ErrPoolOverlap) {
		t.Errorf("an overlap: %v", err)
	}
	if _, err = c.RemovePool(ctx, "default", client.Removal{UID: uid}); !errors.Is(err, client.ErrPoolNotEmpty) {
		t.Errorf("a pool in use: %v", err)
	}
	_, err = c.ApplyPool(ctx, "second", api.PoolRequest{Prefix: "fd00:8::/64"})
	ok("apply pool", err)
	_, err = c.DrainPool(ctx, "default", api.DrainRequest{UID: uid})
	ok("drain pool", err)
	_, err = c.UndrainPool(ctx, "default", api.DrainRequest{UID: uid})
	ok("undrain pool", err)
	gone, err := c.RemovePool(ctx, "default", client.Removal{UID: uid, Mode: api.RemoveForce, Reason: "moved"})
	ok("remove pool", err)
	if gone.Pool.State != api.PoolRemoved {
		t.Errorf("removed: %+v", gone)
	}
	_, err = c.Status(ctx)
	ok("status", err)
	_, err = c.Doctor(ctx)
	ok("doctor", err)
	rules, err := c.Rules(ctx, "")
	ok("rules", err)
	if rules.Mode != "off" {
		t.Errorf("rules: %+v", rules)
	}
	_, err = c.Version(ctx)
	ok("version", err)
	_, err = c.Healthy(ctx)
	ok("healthy", err)
	_, err = c.Ready(ctx)
	ok("ready", err)
	ok("stop", rig.Stop())
	for _, e := range api.Endpoints() {
		if code, ok := asked[string(e.Verb)]; e.Verb != api.VerbMetrics && (!ok || code != "") {
			t.Errorf("%s was asked: %v, answered %q", e.Verb, ok, code)
		}
	}
}

func TestRefusals(t *testing.T) {
	_, c := start(t, func(cfg *server.Config) { cfg.NotReady = func() []string { return []string{"no census yet"} } })
	ctx := t.Context()
	_, err := c.Allocate(ctx, api.AllocateRequest{})
	var message *api.Error
	if !errors.Is(err, client.ErrInvalidArgument) || !errors.As(err, &message) || message.Details["field"] != "sandbox" {
		t.Errorf("no sandbox: %v", err)
	}
	if errors.Is(err, client.ErrNotFound) {
		t.Error("one class is another")
	}
	if _, err := c.Lease(ctx, "a/b?c#d %"); !errors.Is(err, client.ErrNotFound) {
		t.Errorf("an id with every trick: %v", err)
	}
	for what, err := range map[string]error{
		"release": second(c.Release(ctx, "", api.ReleaseRequest{})), "lease": second(c.Lease(ctx, "")),
		"dots": second(c.Pause(ctx, "..", api.PauseRequest{})), "whois": second(c.Whois(ctx, "")),
	} {
		if !errors.Is(err, client.ErrInvalidArgument) {
			t.Errorf("%s of nothing: %v", what, err)
		}
	}
	h, err := c.Ready(ctx)
	if !errors.Is(err, client.ErrNotReady) || h == nil || h.Reasons[0] != "no census yet" || !strings.Contains(err.Error(), "no census yet") {
		t.Errorf("not ready: %+v, %v", h, err)
	}
}

func second[T any](_ T, err error) error { return err }

// TestEveryCode: there is a sentinel for each code, and it is found.
func TestEveryCode(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "errors.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	named := make(map[string]bool)
	ast.Inspect(file, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok && fmt.Sprint(s.X) == "api" {
			named[strings.ToLower(s.Sel.Name)] = true
		}
		return true
	})
	for _, code := range api.Codes() {
		if !named[strings.ReplaceAll(string(code), "_", "")] {
			t.Errorf("no sentinel for %s", code)
		}
	}
}

func TestNotRunning(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "no.sock")
	for name, socket := range map[string]string{"missing": missing, "stale": stale(t)} {
		t.Run(name, func(t *testing.T) {
			c := &client.Client{Socket: socket}
			_, err := c.Status(t.Context())
			if !errors.Is(err, client.ErrNotRunning) || !strings.Contains(err.Error(), "is ipamd running?") || !strings.Contains(err.Error(), socket) {
				t.Error(err)
			}
			if _, err := c.Ready(t.Context()); !errors.Is(err, client.ErrNotRunning) {
				t.Error(err)
			}
		})
	}
}

func stale(t *testing.T) string {
	socket := servertest.Socket(t)
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	ln.SetUnlinkOnClose(false)
	ln.Close()
	return socket
}

// The test binary runs itself as another user: with asOther set it asks the
// socket that it names and prints the error.
const asOther = "IPAMD_TEST_AS_OTHER"

func TestMain(m *testing.M) {
	if socket := os.Getenv(asOther); socket != "" {
		_, err := (&client.Client{Socket: socket}).Status(context.Background())
		fmt.Print(errors.Is(err, client.ErrPermissionDenied), errors.Is(err, os.ErrPermission), " ", err)
		return
	}
	os.Exit(m.Run())
}

// TestMayNotOpen: the mode of the socket says no before ipamd can.
func TestMayNotOpen(t *testing.T) {
	realtest.Root(t)
	rig, _ := start(t)
	if err := os.Chmod(rig.Socket, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/proc/self/exe") // another user cannot reach go test's folder
	cmd.Env = []string{asOther + "=" + rig.Socket}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	out, err := cmd.Output()
	if err != nil || !strings.HasPrefix(string(out), "true true read the status: ") || !strings.Contains(string(out), "root may open it, and its group") {
		t.Errorf("%s, %v", out, err)
	}
}

func TestContext(t *testing.T) {
	began := make(chan struct{})
	_, c := start(t, func(cfg *server.Config) {
		cfg.Deadline = time.Hour
		cfg.Doctor = func(ctx context.Context) []api.Finding { close(began); <-ctx.Done(); return nil }
	})
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-began; cancel() }()
	if _, err := c.Doctor(ctx); !errors.Is(err, context.Canceled) || strings.Contains(err.Error(), "http://") {
		t.Error(err)
	}
	late, cancel := context.WithTimeout(t.Context(), -time.Second)
	defer cancel()
	if _, err := c.Status(late); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
}

// TestConcurrent: many callers share one client, and connections are used
// again.
func TestConcurrent(t *testing.T) {
	rig, c := start(t)
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			for j := range 10 {
				if _, err := c.Allocate(t.Context(), api.AllocateRequest{Sandbox: fmt.Sprintf("%d-%d", i, j)}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if ls, _ := rig.Book.Leases(); len(ls) != 160 {
		t.Errorf("%d leases, want 160", len(ls))
	}
}

// TestStrangeServer: something else listens on the socket.
func TestStrangeServer(t *testing.T) {
	socket := servertest.Socket(t)
	ln, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	hs := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/pools" {
			io.WriteString(w, "<html>")
			return
		}
		http.Error(w, "bad gateway", http.StatusBadGateway)
	})}
	go hs.Serve(ln)
	defer hs.Close()
	c := &client.Client{Socket: socket}
	if _, err := c.Status(t.Context()); !errors.Is(err, client.ErrInternal) || !strings.Contains(err.Error(), "502") {
		t.Error(err)
	}
	if _, err := c.Pools(t.Context()); err == nil || !strings.Contains(err.Error(), "read the reply") {
		t.Error(err)
	}
}
