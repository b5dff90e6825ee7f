package server_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/internal/realtest"
	"github.com/ipamd/ipamd/server"
	"github.com/ipamd/ipamd/server/servertest"
	"github.com/ipamd/ipamd/server/socket"
)

// The test binary runs itself as another user: with asPeer set it asks the
// socket that it names, prints the answers, and ends.
const asPeer = "IPAMD_TEST_AS_PEER"

func TestMain(m *testing.M) {
	if socket := os.Getenv(asPeer); socket != "" {
		if err := peer(socket, os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if socket := os.Getenv(asCrowd); socket != "" {
		size, err := strconv.Atoi(os.Args[2])
		if err == nil {
			err = crowd(socket, os.Args[1], size)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if socket := os.Getenv(asGreedy); socket != "" {
		size, err := strconv.Atoi(os.Args[1])
		if err == nil {
			err = greedy(socket, size)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// peer asks each "METHOD path [body]" and prints status and code. "leave" asks for something and does not wait; "promise" announces a body
// and sends none.
func peer(socket string, asks []string) error {
	c, err := net.Dial("unix", socket)
	if err != nil {
		return err
	}
	defer c.Close()
	r, hungUp := bufio.NewReader(c), false
	for _, ask := range asks {
		if hungUp { // the daemon does so with whom it refuses
			c.Close()
			if c, err = net.Dial("unix", socket); err != nil {
				return err
			}
			r = bufio.NewReader(c)
		}
		if ask == "promise" { // a body that never comes
			if _, err := fmt.Fprint(c, "POST /v1/leases HTTP/1.1\r\nHost: ipamd\r\nContent-Length: 900000\r\n\r\n"); err != nil {
				return err
			}
			resp, err := http.ReadResponse(r, nil)
			if err != nil {
				return err
			}
			return report(resp)
		}
		if ask == "leave" {
			_, err := fmt.Fprint(c, "GET /v1/leases HTTP/1.1\r\nHost: ipamd\r\n\r\n")
			return err
		}
		method, rest, _ := strings.Cut(ask, " ")
		path, body, _ := strings.Cut(rest, " ")
		req, err := http.NewRequest(method, "http://ipamd"+path, strings.NewReader(body))
		if err != nil {
			return err
		}
		if err := req.Write(c); err != nil {
			return err
		}
		resp, err := http.ReadResponse(r, req)
		if err != nil {
			return err
		}
		if err := report(resp); err != nil {
			return err
		}
		hungUp = resp.Close
	}
	return nil
}

func report(resp *http.Response) error {
	var e api.Error
	if err := json.NewDecoder(resp.Body).Decode(&e); err != nil {
		return err
	}
	_, err := fmt.Println(strings.TrimSpace(fmt.Sprint(resp.StatusCode, " ", e.Code)))
	return err
}

func runPeer(t *testing.T, socket string, as *syscall.SysProcAttr, asks ...string) string {
	t.Helper()
	// Through /proc, because another user cannot reach the folder that go
	// test builds in.
	cmd := exec.Command("/proc/self/exe", asks...)
	cmd.Env = []string{asPeer + "=" + socket}
	cmd.SysProcAttr = as
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.ReplaceAll(strings.TrimSuffix(string(out), "\n"), "\n", ", ")
}

const (
	getStatus  = "GET /v1/status"
	post       = `POST /v1/leases {"sandbox":"a"}`
	quarantine = `POST /v1/addresses/10.8.64.99/quarantine {"reason":"r"}`
	reconcile  = `POST /v1/reconcile {"confirm":true}`
)

// TestPeers is S1: who may do what, by what the kernel says of the peer.
func TestPeers(t *testing.T) {
	realtest.Root(t)
	user := func(uid, gid uint32, groups ...uint32) *syscall.SysProcAttr {
		return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: gid, Groups: groups}}
	}
	many := make([]uint32, 100) // more groups than fit at the first asking
	for i := range many {
		many[i] = uint32(50_000 + i)
	}
	for _, c := range []struct {
		name string
		as   *syscall.SysProcAttr
		want string
	}{
		{"root is admin", &syscall.SysProcAttr{}, "200, 201, 200, 200"},
		{"a stranger reads", user(65534, 65534), "200, 403 permission_denied, 403 permission_denied, 403 permission_denied"},
		{"a configured uid is a runtime", user(4001, 65534), "200, 201, 403 permission_denied, 403 permission_denied"},
		{"a configured gid is a runtime", user(65534, 4002), "200, 201, 403 permission_denied, 403 permission_denied"},
		{"so is a supplementary one", user(65534, 65534, 7, 4002), "200, 201, 403 permission_denied, 403 permission_denied"},
		{"so is one of a hundred", user(65534, 65534, append(many, 4002)...), "200, 201, 403 permission_denied, 403 permission_denied"},
		{"a hundred others are not", user(65534, 65534, many...), "200, 403 permission_denied, 403 permission_denied, 403 permission_denied"},
	} {
		t.Run(c.name, func(t *testing.T) {
			rig := servertest.Start(t, func(cfg *server.Config) {
				cfg.RuntimeUIDs, cfg.RuntimeGIDs = []uint32{4001}, []uint32{4002}
			})
			if got := runPeer(t, rig.Socket, c.as, getStatus, post, quarantine, reconcile); got != c.want {
				t.Errorf("%s; want %s", got, c.want)
			}
			if ls, _ := rig.Book.Leases(); strings.Count(c.want, "403") == 3 && len(ls) != 0 {
				t.Errorf("a refused peer changed the book: %v", ls)
			}
		})
	}
}

// TestUserNamespace is S1 and the reason for it: root of a sandbox that is
// mapped to root, or to a configured uid, of the host is still a stranger.
func TestUserNamespace(t *testing.T) {
	realtest.Root(t)
	for _, host := range []int{0, 4001} {
		t.Run(fmt.Sprintf("root mapped to %d", host), func(t *testing.T) {
			rig := servertest.Start(t, func(cfg *server.Config) { cfg.RuntimeUIDs = []uint32{4001} })
			maps := []syscall.SysProcIDMap{{ContainerID: 0, HostID: host, Size: 1}}
			as := func() *syscall.SysProcAttr {
				return &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER, UidMappings: maps, GidMappings: maps,
					Credential: &syscall.Credential{Uid: 0, Gid: 0, NoSetGroups: true}}
			}
			all := []string{getStatus, post, "GET /healthz", "GET /nowhere", "PUT /v1/leases"}
			want := strings.TrimSuffix(strings.Repeat("403 permission_denied, ", len(all)), ", ")
			for range 2 {
				if got := runPeer(t, rig.Socket, as(), all...); got != want {
					t.Errorf("%s", got)
				}
			}
			if n := rig.Log.Count("a peer is refused"); n != 1 {
				t.Errorf("logged %d times, want once", n)
			}
			if n := rig.Log.Count(fmt.Sprintf("uid=%d ", host)); n != 1 {
				t.Error("the log does not name the uid")
			}
		})
	}
}

// TestEndedPeer: a process that connects and ends before it is judged cannot
// lend its place to the process that gets its pid.
func TestEndedPeer(t *testing.T) {
	realtest.Root(t)
	rig := &servertest.Rig{Log: new(servertest.Log)}
	running := servertest.Start(t) // for a book
	rig.Book, rig.Board = running.Book, running.Board
	s, err := server.New(servertest.Config(rig))
	if err != nil {
		t.Fatal(err)
	}
	path := servertest.Socket(t)
	ln, err := socket.Listen(path, 0o666, -1)
	if err != nil {
		t.Fatal(err)
	}
	runPeer(t, path, nil, "leave") // connects in the backlog, and is gone
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- s.Serve(ctx, ln) }()
	realtest.Eventually(t, soon, "the peer is refused", func() bool { return rig.Log.Count("has ended") == 1 })
	cancel()
	if err := <-served; err != nil {
		t.Error(err)
	}
}

// TestRefusedUnread: a peer without rights is refused while its body is still
// on its way.
func TestRefusedUnread(t *testing.T) {
	realtest.Root(t)
	rig := servertest.Start(t)
	as := &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	if got := runPeer(t, rig.Socket, as, "promise"); got != "403 permission_denied" {
		t.Error(got)
	}
}
