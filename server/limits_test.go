package server_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/internal/realtest"
	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/server"
	"github.com/ipamd/ipamd/server/servertest"
)

func dial(t *testing.T, rig *servertest.Rig) net.Conn {
	t.Helper()
	c, err := net.Dial("unix", rig.Socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// soon is how long a busy machine may take for anything. It is less than the two
// minutes that a connection may be idle between two calls.
const soon = time.Minute

// closed waits until the server has closed the connection.
func closed(t *testing.T, c net.Conn) {
	t.Helper()
	if err := c.SetReadDeadline(time.Now().Add(soon)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, c); err != nil {
		t.Errorf("not closed within %v: %v", soon, err)
	}
}

// healthy asks for the daemon's health on that connection.
func healthy(t *testing.T, c net.Conn, answers *bufio.Reader) {
	t.Helper()
	fmt.Fprint(c, "GET /healthz HTTP/1.1\r\nHost: ipamd\r\n\r\n")
	resp, err := http.ReadResponse(answers, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != 200 {
		t.Fatalf("health: %d, %v", resp.StatusCode, err)
	}
}

// TestIdleConnections is S2: more idle connections than there is room for
// shut no peer out; the longest idle goes first.
func TestIdleConnections(t *testing.T) {
	rig := servertest.Start(t, func(c *server.Config) { c.MaxConns = 8 })
	s := speak(t, rig)
	first, second := dial(t, rig), dial(t, rig)
	healthy(t, first, bufio.NewReader(first)) // from here on it may be idle for longer than soon
	healthy(t, second, bufio.NewReader(second))
	for range 100 {
		dial(t, rig)
	}
	// The server notes that first is idle after its answer was sent, which may be
	// after the hundred: then further ones push it out.
	realtest.Eventually(t, soon, "the longest idle connection is closed", func() bool {
		dial(t, rig)
		if err := first.SetReadDeadline(time.Now().Add(10 * time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		_, err := first.Read(make([]byte, 1))
		return errors.Is(err, io.EOF)
	})
	for range 20 {
		s.http.CloseIdleConnections() // each call comes on a connection of its own
		want[api.Health](t, s, 200, "Health", "GET", "/healthz", "")
	}
}

// TestBusyConnections: when every connection has a call running, the next one
// waits and is served after.
func TestBusyConnections(t *testing.T) {
	hold, busy := make(chan struct{}), make(chan struct{}, 2)
	rig := servertest.Start(t, func(c *server.Config) {
		c.MaxConns = 2
		c.NotReady = func() []string { busy <- struct{}{}; <-hold; return nil }
	})
	for range 2 {
		fmt.Fprint(dial(t, rig), "GET /readyz HTTP/1.1\r\nHost: ipamd\r\n\r\n")
		<-busy
	}
	third := dial(t, rig)
	fmt.Fprint(third, "GET /healthz HTTP/1.1\r\nHost: ipamd\r\n\r\n")
	if err := third.SetReadDeadline(time.Now().Add(50 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if n, err := third.Read(make([]byte, 1)); n != 0 || err == nil {
		t.Error("a third connection was served while two are the most")
	}
	close(hold)
	if err := third.SetReadDeadline(time.Now().Add(soon)); err != nil {
		t.Fatal(err)
	}
	if resp, err := http.ReadResponse(bufio.NewReader(third), nil); err != nil || resp.StatusCode != 200 {
		t.Errorf("the waiting one: %v, %v", resp, err)
	}
}

// TestSlowClients is S2: half a header and half a body are cut, and nothing
// is reserved by them.
func TestSlowClients(t *testing.T) {
	realtest.Long(t)
	t.Parallel()
	rig := servertest.Start(t)
	header, body := dial(t, rig), dial(t, rig)
	fmt.Fprint(header, "GET /healthz HTT")
	fmt.Fprint(body, "POST /v1/leases HTTP/1.1\r\nHost: ipamd\r\nContent-Length: 20\r\n\r\n{\"sandbox\":")
	closed(t, header)
	closed(t, body)
	if ls, _ := rig.Book.Leases(); len(ls) != 0 {
		t.Errorf("half a request reserved %v", ls)
	}
}

func TestLargeBody(t *testing.T) {
	s := speak(t, servertest.Start(t))
	large := `{"sandbox":"` + strings.Repeat("x", 2<<20) + `"}`
	if a := s.ask(t, "POST", "/v1/leases", large); a.status != 413 || a.err.Code != api.InvalidArgument || a.err.Details["field"] != "body" {
		t.Errorf("2 MiB: %d %.200s", a.status, a.body)
	}
	// The same without an announced length.
	req, err := http.NewRequest("POST", "http://ipamd/v1/leases", io.MultiReader(strings.NewReader(large)))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := s.http.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != 413 {
		t.Errorf("2 MiB in chunks: %d", resp.StatusCode)
	}
	want[api.Health](t, s, 200, "Health", "GET", "/healthz", "")
}

// TestKilledClient is S2: a client that goes away in mid-request takes its
// call with it, and nothing else.
func TestKilledClient(t *testing.T) {
	began, ended := make(chan struct{}), make(chan error, 1)
	rig := servertest.Start(t, func(c *server.Config) {
		c.Deadline = time.Hour
		c.Doctor = func(ctx context.Context) []api.Finding {
			close(began)
			<-ctx.Done()
			ended <- ctx.Err()
			return nil
		}
	})
	c := dial(t, rig)
	fmt.Fprint(c, "GET /v1/doctor HTTP/1.1\r\nHost: ipamd\r\n\r\n")
	<-began
	c.Close()
	if err := <-ended; err != context.Canceled {
		t.Error(err)
	}
}

// TestDeadline: every call has one.
func TestDeadline(t *testing.T) {
	s := speak(t, servertest.Start(t, func(c *server.Config) {
		c.Deadline = 20 * time.Millisecond
		c.Doctor = func(ctx context.Context) []api.Finding { <-ctx.Done(); return nil }
	}))
	if a := s.ask(t, "GET", "/v1/doctor", ""); a.status != 504 || !a.err.Retryable {
		t.Errorf("%d %s", a.status, a.body)
	}
}

// TestPanic: a panic ends its call alone.
func TestPanic(t *testing.T) {
	var codes []api.Code
	s := speak(t, servertest.Start(t, func(c *server.Config) {
		c.Doctor = func(context.Context) []api.Finding { panic("secret") }
		c.Observe = func(verb string, code api.Code, _ time.Duration) {
			if verb == "doctor" {
				codes = append(codes, code)
			}
		}
	}))
	a := s.ask(t, "GET", "/v1/doctor", "")
	if a.err.Code != api.Internal || strings.Contains(string(a.body), "secret") {
		t.Errorf("%d %s", a.status, a.body)
	}
	if s.Log.Count("panic=secret") != 1 {
		t.Error("the panic is not in the log")
	}
	want[api.Health](t, s, 200, "Health", "GET", "/healthz", "")
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	if len(codes) != 1 || codes[0] != api.Internal {
		t.Errorf("observed %v", codes)
	}
}

// TestDrain: at the end a call that runs is finished, a release that waits is
// answered at once, a connection that says nothing is not waited for, and no
// goroutine is left.
func TestDrain(t *testing.T) {
	realtest.InTime(t, 3*time.Second, "the drain", func() time.Duration { return drains(t) })
}

func drains(t *testing.T) (took time.Duration) {
	s := speak(t, servertest.Start(t))
	l := allocate(t, s, "a")
	done := make(chan answer, 1)
	go func() { done <- s.ask(t, "POST", "/v1/leases/"+l.ID+"/release", `{"wait":"60s"}`) }()
	realtest.Eventually(t, soon, "the release has begun", func() bool {
		now, err := s.Book.Lease(l.ID)
		return err == nil && now.State == ipam.Releasing
	})
	begun := time.Now()
	silent, other := dial(t, s.Rig), dial(t, s.Rig)
	healthy(t, other, bufio.NewReader(other)) // so the one before it was let in
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	took = time.Since(begun)
	if a := <-done; a.status != 202 {
		t.Errorf("the waiting release: %d %s", a.status, a.body)
	}
	closed(t, silent)
	s.http.CloseIdleConnections()
	realtest.Eventually(t, soon, "every goroutine of the server has ended", func() bool {
		stacks := make([]byte, 1<<20)
		stacks = stacks[:runtime.Stack(stacks, true)]
		return !bytes.Contains(stacks, []byte("http.(*Server).Serve")) && !bytes.Contains(stacks, []byte("http.(*conn)"))
	})
	if _, err := net.Dial("unix", s.Socket); err == nil {
		t.Error("the socket still answers")
	}
	return took
}
