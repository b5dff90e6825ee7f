package main

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/client/answer"
)

// listen is a socket with a short path.
func listen(t *testing.T) (net.Listener, string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "x")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket := filepath.Join(dir, "s")
	ln, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	return ln, socket
}

// A server of net/http is understood: what it reads is what was asked, and what it answers, of any
// length and in as many parts as it likes, is what is read.
func TestExchangeWithAServer(t *testing.T) {
	ln, socket := listen(t)
	long := strings.Repeat("x", 3<<20)
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		switch r.URL.Path {
		case "/echo":
			_, _ = io.WriteString(w, r.Method+" "+r.URL.RawQuery+" "+r.Header.Get("Content-Type")+" "+string(body))
		case "/parts":
			for part := range 3 {
				_, _ = io.WriteString(w, strconv.Itoa(part)+long)
				w.(http.Flusher).Flush()
			}
		case "/later":
			w.Header().Set("retry-after", "7")
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = io.WriteString(w, `{"code":"not_ready","message":"m","retryable":true}`)
		case "/none":
			w.WriteHeader(http.StatusNoContent)
		}
	})}
	go func() { _ = server.Serve(ln) }()
	t.Cleanup(func() { _ = server.Close() })
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for _, c := range []struct {
		method, path, body   string
		status, after, reply string
	}{
		{"POST", "/echo?a=%2F", `{"b":1}`, "200 OK", "", `POST a=%2F application/json {"b":1}`},
		{"GET", "/echo", "", "200 OK", "", "GET   "},
		{"POST", "/echo", long, "200 OK", "", "POST  application/json " + long},
		{"GET", "/parts", "", "200 OK", "", "0" + long + "1" + long + "2" + long},
		{"GET", "/later", "", "503 Service Unavailable", "7", `{"code":"not_ready","message":"m","retryable":true}`},
		{"GET", "/none", "", "204 No Content", "", ""},
	} {
		var body []byte
		if c.body != "" {
			body = []byte(c.body)
		}
		r, err := exchange(ctx, socket, c.method, c.path, body)
		if err != nil {
			t.Errorf("%s %s: %v", c.method, c.path, err)
		} else if r.status != c.status || r.after != c.after || string(r.body) != c.reply {
			t.Errorf("%s %s: %q, after %q, %d bytes %.60q", c.method, c.path, r.status, r.after, len(r.body), r.body)
		}
	}
	d := daemon{socket}
	_, err := call[api.PoolList](ctx, d, "list pools", "GET", "/later", nil)
	if f := new(answer.Failure); !errors.As(err, &f) || f.After != 7*time.Second || !errors.Is(err, answer.Class(api.NotReady)) || !passes(err) {
		t.Errorf("refused for now: %v", err)
	}
	if _, err = call[api.PoolList](ctx, d, "list pools", "GET", "/echo", nil); err == nil || passes(err) != broken(err) {
		t.Errorf("a body that is none of ipamd's: %v", err)
	}
}

// What comes back wrong, in part or not at all is an error, and never an answer.
func TestExchangeThatFails(t *testing.T) {
	const head = "HTTP/1.0 200 OK\r\nContent-Length: "
	for name, c := range map[string]struct {
		sent string
		want error // nil: any
	}{
		"closed at once":         {"", nil},
		"cut in the head":        {head + "20", io.ErrUnexpectedEOF},
		"cut in the body":        {head + "20\r\n\r\n{}", io.ErrUnexpectedEOF},
		"no HTTP":                {"SSH-2.0-x\r\n\r\n", nil},
		"no status":              {"HTTP/1.0\r\n\r\n{}", nil},
		"a length below nothing": {head + "-1\r\n\r\n{}", nil},
		"in chunks":              {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n", nil},
		"never":                  {"wait", context.DeadlineExceeded},
		"never whole":            {"wait" + head + "20\r\n\r\n{}", context.DeadlineExceeded},
	} {
		t.Run(name, func(t *testing.T) {
			ln, socket := listen(t)
			text, waits := strings.CutPrefix(c.sent, "wait")
			end := make(chan struct{})
			over := make(chan struct{})
			go func() {
				defer close(over)
				conn, err := ln.Accept()
				if err != nil {
					t.Error(err)
					return
				}
				_, _ = conn.Read(make([]byte, 4096))
				_, _ = io.WriteString(conn, text)
				if waits {
					<-end
				}
				_ = conn.Close()
			}()
			limit := time.Minute
			if waits {
				limit = 100 * time.Millisecond
			}
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			r, err := exchange(ctx, socket, "GET", "/", nil)
			close(end)
			<-over
			if err == nil || c.want != nil && !errors.Is(err, c.want) {
				t.Fatalf("%+v, %v", r, err)
			}
			if err := answer.Unreached("ask", socket, err); !passes(err) {
				t.Errorf("is no reason to ask again: %v", err)
			}
		})
	}
}

// Where no daemon can be asked, the error says so as package client's does.
func TestExchangeWithNobody(t *testing.T) {
	ln, socket := listen(t)
	ln.(*net.UnixListener).SetUnlinkOnClose(false)
	_ = ln.Close()
	for path, want := range map[string]error{socket: syscall.ECONNREFUSED, socket + "x": syscall.ENOENT} {
		_, err := daemon{path}.pools(t.Context())
		if !errors.Is(err, answer.NotRunning) || !errors.Is(err, want) || !strings.Contains(err.Error(), "is ipamd running?") {
			t.Errorf("%s: %v", path, err)
		}
	}
	// A daemon whose backlog is full is there. It is waited for, and no longer than the caller has.
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(fd)
	if err = errors.Join(syscall.Bind(fd, &syscall.SockaddrUnix{Name: socket + "y"}), syscall.Listen(fd, 0)); err != nil {
		t.Fatal(err)
	}
	first, err := net.Dial("unix", socket+"y")
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := (daemon{socket + "y"}).pools(ctx); !errors.Is(err, context.DeadlineExceeded) || !passes(err) {
		t.Errorf("a full backlog: %v", err)
	}
}
