package main

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A server is one on a real socket, from the command line on.
type server struct {
	*testing.T
	file string
	http *http.Client
}

func start(t *testing.T, args ...string) *server {
	t.Helper()
	dir, err := os.MkdirTemp("", "owner-") // a socket's path is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	s := &server{T: t, file: filepath.Join(dir, "sandboxes")}
	socket := filepath.Join(dir, "o.sock")
	s.write("job-17 valid\njob-18 gone\nteam a/../x  valid\n\n")
	ctx, cancel := context.WithCancel(context.Background())
	cmd := command()
	cmd.SetArgs(append([]string{"--file", s.file, "--socket", socket}, args...))
	cmd.SetErr(t.Output())
	done := make(chan error, 1)
	go func() { done <- cmd.ExecuteContext(ctx) }()
	wire := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		for {
			c, err := new(net.Dialer).DialContext(ctx, "unix", socket)
			if err == nil || ctx.Err() != nil {
				return c, err
			}
		}
	}}
	s.http = &http.Client{Transport: wire, Timeout: time.Minute}
	t.Cleanup(func() {
		wire.CloseIdleConnections()
		cancel()
		if err := <-done; err != nil {
			t.Errorf("it ended with %v at its stop", err)
		}
	})
	return s
}

func (s *server) write(lines string) {
	s.Helper()
	if err := os.WriteFile(s.file, []byte(lines), 0o600); err != nil {
		s.Fatal(err)
	}
}

func (s *server) get(path string) (int, string) {
	s.Helper()
	reply, err := s.http.Get("http://owner" + path)
	if err != nil {
		s.Fatal(err)
	}
	defer reply.Body.Close()
	body, err := io.ReadAll(reply.Body)
	if err != nil {
		s.Fatal(err)
	}
	return reply.StatusCode, strings.TrimSpace(string(body))
}

func (s *server) want(path string, status int, body string) {
	s.Helper()
	if got, text := s.get(path); got != status || !strings.Contains(text, body) {
		s.Errorf("GET %s: %d %s, want %d %s", path, got, text, status, body)
	}
}

const first = `[{"id":"job-17","state":"valid"},{"id":"job-18","state":"gone"},{"id":"team a/../x ","state":"valid"}]`

func TestAnswers(t *testing.T) {
	s := start(t)
	s.want("/sandboxes", 200, first)
	s.want("/sandboxes/job-17", 200, `{"id":"job-17","state":"valid"}`)
	s.want("/sandboxes/job-18", 200, `{"id":"job-18","state":"gone"}`)
	s.want("/sandboxes/team%20a%2F..%2Fx%20", 200, `"state":"valid"`)
	s.want("/sandboxes/%2F", 200, `{"id":"/","state":"gone"}`)
	s.want("/sandboxes/job-1", 200, `{"id":"job-1","state":"gone"}`)
	s.want("/sandboxes/", 404, "")
	s.write("")
	s.want("/sandboxes", 200, "[]")
	s.want("/sandboxes/job-17", 200, `"gone"`)
	for _, broken := range []string{"job-17\n", " valid\n"} {
		s.write(broken)
		s.want("/sandboxes", 500, "want an id, a blank and a state")
		s.want("/sandboxes/job-17", 500, ":1: ")
	}
	if err := os.Remove(s.file); err != nil {
		t.Fatal(err)
	}
	s.want("/sandboxes", 500, "no such file")
	s.want("/sandboxes/job-17", 500, "no such file")
}

// The list lags; what is said about one sandbox does not.
func TestLag(t *testing.T) {
	s := start(t, "--lag", "1h")
	s.want("/sandboxes", 200, first)
	s.write("job-17 gone\n")
	s.want("/sandboxes", 200, first)
	s.want("/sandboxes/job-17", 200, "gone")
	s.want("/sandboxes/job-18", 200, `"gone"`)

	clock := time.Unix(1_750_000_000, 0)
	h := &handler{file: s.file, lag: time.Minute, now: func() time.Time { return clock }}
	listed := func() int {
		t.Helper()
		w := httptest.NewRecorder()
		h.all(w, nil)
		return strings.Count(w.Body.String(), `"id"`)
	}
	for _, step := range []struct {
		passed time.Duration
		want   int
	}{{0, 1}, {59 * time.Second, 1}, {time.Second, 3}} {
		if clock = clock.Add(step.passed); listed() != step.want {
			t.Errorf("%v later %d are listed, want %d", step.passed, listed(), step.want)
		}
		s.write("a valid\nb valid\nc valid\n")
	}
}

func TestBadCommandLines(t *testing.T) {
	for _, args := range [][]string{{}, {"--file", "x", "--lag", "-1s"}, {"--file", "x", "y"}, {"--file", "x", "--socket", "/does/not/exist/s"}} {
		cmd := command()
		cmd.SetArgs(args)
		cmd.SetErr(t.Output())
		if err := cmd.ExecuteContext(t.Context()); err == nil {
			t.Errorf("%q is taken", args)
		}
	}
}
