package server_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/internal/realtest"
	"github.com/ipamd/ipamd/server"
	"github.com/ipamd/ipamd/server/servertest"
)

// asCrowd makes the test binary a process that opens connections, says the
// same on each, and opens another for each that is closed, until its standard
// input ends.
const asCrowd = "IPAMD_TEST_AS_CROWD"

func crowd(socket string, says string, size int) error {
	over := make(chan struct{})
	var all sync.WaitGroup
	for range size {
		all.Go(func() {
			for {
				select {
				case <-over:
					return
				default:
				}
				c, err := net.Dial("unix", socket)
				if err != nil {
					continue // its backlog is full
				}
				stop := context.AfterFunc(closing(over), func() { c.Close() })
				if _, err = fmt.Fprint(c, says); err == nil {
					_, _ = io.Copy(io.Discard, c) // until it is closed
				}
				stop()
				c.Close()
			}
		})
	}
	fmt.Println("here")
	_, err := io.Copy(io.Discard, os.Stdin)
	close(over)
	all.Wait()
	return err
}

func closing(over chan struct{}) context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	go func() { <-over; cancel() }()
	return ctx
}

// startCrowd starts one; it ends with the test.
func startCrowd(t *testing.T, rig *servertest.Rig, as *syscall.SysProcAttr, says string, size int) {
	t.Helper()
	cmd := exec.Command("/proc/self/exe", says, fmt.Sprint(size))
	cmd.Env = []string{asCrowd + "=" + rig.Socket}
	cmd.SysProcAttr = as
	startPeer(t, cmd)
}

// startPeer starts a process and returns once it has said a line. It ends when it is asked to, or with the test.
func startPeer(t *testing.T, cmd *exec.Cmd) (leave func()) {
	t.Helper()
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	leave = sync.OnceFunc(func() {
		in.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("%v: %v", cmd.Env, err)
		}
	})
	t.Cleanup(leave)
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	return leave
}

// TestGreedyPeer is S2: whatever a crowd does on more connections than there
// are, and goes on doing, a connection of another is served, and kept.
func TestGreedyPeer(t *testing.T) {
	realtest.Root(t)
	other := &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	for _, c := range []struct {
		name, says string
		as         *syscall.SysProcAttr
		rate       int
	}{
		{"says nothing", "", other, 0},
		{"half a header", "GET /healthz HTT", other, 0},
		{"a body that it may not send", "POST /v1/leases HTTP/1.1\r\nHost: i\r\nContent-Length: 90\r\n\r\n", other, 0},
		{"a body that no verb takes", "GET /healthz HTTP/1.1\r\nHost: i\r\nContent-Length: 90\r\n\r\n", other, 0},
		{"a body that does not come", "POST /v1/leases HTTP/1.1\r\nHost: i\r\nContent-Length: 90\r\n\r\n{", nil, 0},
		{"calls that take their time", "GET /v1/doctor HTTP/1.1\r\nHost: i\r\n\r\n", other, 0},
		{"one call after the other", strings.Repeat("GET /v1/status HTTP/1.1\r\nHost: i\r\n\r\n", 10), other, 0},
		{"calls beyond its rate", strings.Repeat("GET /healthz HTTP/1.1\r\nHost: i\r\n\r\n", 10), other, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			rig := servertest.Start(t, func(cfg *server.Config) {
				cfg.MaxConns, cfg.Limits.InFlight, cfg.Limits.ReaderRate = 16, 8, c.rate
				cfg.Doctor = func(ctx context.Context) []api.Finding { <-ctx.Done(); return nil }
			})
			s := speak(t, rig)
			held := dial(t, rig)
			answers := bufio.NewReader(held)
			healthy(t, held, answers) // its first words would be waited for but a while
			startCrowd(t, rig, c.as, c.says, 48)
			for range 20 {
				s.http.CloseIdleConnections() // a new connection for each
				want[api.Health](t, s, 200, "Health", "GET", "/healthz", "")
				healthy(t, held, answers)
			}
		})
	}
}

// TestInFlight: more calls at once than one peer may have are refused with
// when to come again, before their bodies come; others are served, and so is
// the peer itself when its calls are over.
func TestInFlight(t *testing.T) {
	realtest.Root(t)
	hold, busy := make(chan struct{}), make(chan struct{}, 3)
	rig := servertest.Start(t, func(c *server.Config) {
		c.Limits.InFlight = 3
		c.NotReady = func() []string { busy <- struct{}{}; <-hold; return nil }
	})
	free := sync.OnceFunc(func() { close(hold) })
	defer free()
	s := speak(t, rig)
	for range 3 {
		fmt.Fprint(dial(t, rig), "GET /readyz HTTP/1.1\r\nHost: ipamd\r\n\r\n")
		<-busy
	}
	for _, ask := range []string{"GET /healthz", "GET /nowhere", "GET /v1/leases"} {
		method, path, _ := strings.Cut(ask, " ")
		a := s.ask(t, method, path, "")
		if a.status != 429 || a.err.Code != api.TooManyRequests || !a.err.Retryable || a.header.Get("Retry-After") != "1" ||
			a.err.Details["limit"] != "in_flight" || a.err.Details["most"] != 3.0 {
			t.Errorf("%s: %d, Retry-After %q: %s", ask, a.status, a.header.Get("Retry-After"), a.body)
		}
	}
	unsent := dial(t, rig)
	fmt.Fprint(unsent, "POST /v1/leases HTTP/1.1\r\nHost: ipamd\r\nContent-Length: 900000\r\n\r\n")
	if resp, err := http.ReadResponse(bufio.NewReader(unsent), nil); err != nil || resp.StatusCode != 429 {
		t.Errorf("a body on its way: %v, %v", resp, err)
	}
	if n := rig.Log.Count("asks for too much"); n != 1 {
		t.Errorf("logged %d times, want once", n)
	}
	// Another process of the same user, and another user.
	if got := runPeer(t, rig.Socket, nil, "GET /healthz"); got != "200" {
		t.Error(got)
	}
	free()
	realtest.Eventually(t, soon, "the peer is served again", func() bool {
		return s.ask(t, "GET", "/healthz", "").status == 200
	})
}

// TestRate: a peer that asks too often is answered when to come again.
func TestRate(t *testing.T) {
	realtest.Long(t)
	realtest.Root(t)
	s := speak(t, servertest.Start(t, func(c *server.Config) { c.Limits.Rate, c.Limits.ReaderRate = 2, 1 }))
	refused := false
	for range 100 {
		if a := s.ask(t, "GET", "/healthz", ""); a.status == 429 {
			refused = a.err.Code == api.TooManyRequests && a.err.Details["limit"] == "rate" && a.header.Get("Retry-After") == "1"
			break
		}
	}
	if !refused {
		t.Error("a hundred calls at once, where two a second are the most, were not refused rightly")
	}
	// All processes of a reader share its rate.
	reader := &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	message := runPeer(t, s.Socket, reader, "GET /healthz")
	if message != "200" {
		t.Error(message)
	}
	// Two processes, so that it is not the first one's calls alone.
	asks := slices.Repeat([]string{"GET /healthz"}, 20)
	runPeer(t, s.Socket, reader, asks...)
	if message = runPeer(t, s.Socket, reader, asks...); !strings.Contains(message, "429 too_many_requests") {
		t.Errorf("a reader that forks: %s", message)
	}
}

// G14: a peer that asks without a pause beyond its rate, and for what it may not, is
// answered a few times a second on each connection, not as often as it asks.
func TestG14RefusalsCostTheirPeer(t *testing.T) {
	realtest.Root(t)
	s := speak(t, servertest.Start(t, func(c *server.Config) { c.Limits.ReaderRate = 2 }))
	reader := &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	began := time.Now()
	message := runPeer(t, s.Socket, reader, slices.Repeat([]string{post}, 12)...)
	took := time.Since(began)
	denied, refused := strings.Count(message, "403"), strings.Count(message, "429 too_many_requests")
	if denied == 0 || refused == 0 || denied+refused != 12 {
		t.Fatalf("%d are denied and %d refused: %s", denied, refused, message)
	}
	if took < time.Duration(refused)*150*time.Millisecond {
		t.Errorf("%d refusals, one after the other, took %v", refused, took)
	}
}

// TestEvictedCall: more connections than there is room for, all in use again
// and again: a call is answered, or it is not carried out.
func TestEvictedCall(t *testing.T) {
	var done, answered, closed atomic.Int64
	rig := servertest.Start(t, func(c *server.Config) {
		c.MaxConns = 4
		c.NotReady = func() []string { done.Add(1); return nil }
	})
	var callers sync.WaitGroup
	for range 8 {
		callers.Go(func() {
			var c net.Conn
			var r *bufio.Reader
			for range 300 {
				if c == nil {
					var err error
					if c, err = net.Dial("unix", rig.Socket); err != nil {
						t.Error(err)
						return
					}
					r = bufio.NewReader(c)
				}
				_, err := fmt.Fprint(c, "GET /readyz HTTP/1.1\r\nHost: i\r\n\r\n")
				if err == nil {
					var resp *http.Response
					if resp, err = http.ReadResponse(r, nil); err == nil {
						_, err = io.Copy(io.Discard, resp.Body)
					}
				}
				if err != nil {
					closed.Add(1)
					c.Close()
					c = nil
					continue
				}
				answered.Add(1)
			}
			if c != nil {
				c.Close()
			}
		})
	}
	callers.Wait()
	if err := rig.Stop(); err != nil {
		t.Error(err)
	}
	if done.Load() != answered.Load() || closed.Load() == 0 || answered.Load() == 0 {
		t.Errorf("%d calls carried out, %d answered, %d met a closed connection", done.Load(), answered.Load(), closed.Load())
	}
}

// TestSlowReader is S2: a client that asks and does not read is cut, and what
// it was to receive is not kept for it.
func TestSlowReader(t *testing.T) {
	realtest.Long(t)
	t.Parallel()
	rig := servertest.Start(t)
	c := dial(t, rig)
	if err := c.SetWriteDeadline(time.Now().Add(5 * time.Minute)); err != nil {
		t.Fatal(err)
	}
	asks := strings.Repeat("GET /v1/status HTTP/1.1\r\nHost: i\r\n\r\n", 100)
	for {
		if _, err := fmt.Fprint(c, asks); os.IsTimeout(err) {
			t.Fatal("not cut within five minutes")
		} else if err != nil {
			return
		}
	}
}
