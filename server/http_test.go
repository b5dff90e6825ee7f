package server_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/internal/apidoc"
	"github.com/ipamd/ipamd/server/servertest"
)

// A speaker speaks plain HTTP on the socket and holds every answer against
// openapi.yaml and the table of routes.
type speaker struct {
	*servertest.Rig
	doc  *apidoc.Doc
	http *http.Client
}

func speak(t testing.TB, rig *servertest.Rig) *speaker {
	s := &speaker{rig, apidoc.Load(t, "../api/openapi.yaml"), &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", rig.Socket)
		}}}}
	t.Cleanup(s.http.CloseIdleConnections)
	return s
}

type answer struct {
	status int
	header http.Header
	body   []byte
	err    api.Error // when it is one
}

func (s *speaker) ask(t testing.TB, method, path, body string) answer {
	t.Helper()
	req, err := http.NewRequest(method, "http://ipamd"+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	return s.do(t, req)
}

func (s *speaker) do(t testing.TB, req *http.Request) answer {
	t.Helper()
	method, path := req.Method, req.URL.RequestURI()
	resp, err := s.http.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	a := answer{status: resp.StatusCode, header: resp.Header}
	if a.body, err = io.ReadAll(resp.Body); err != nil {
		t.Fatal(err)
	}
	if a.status >= 300 && path != "/readyz" {
		s.doc.Check(t, "Error", a.body)
		if err := json.Unmarshal(a.body, &a.err); err != nil {
			t.Fatal(err)
		}
		if e, ok := endpoint(method, path); ok && !slices.Contains(e.Codes, a.err.Code) {
			t.Errorf("%s answered %s, which its route does not list", e.Verb, a.err.Code)
		}
	}
	return a
}

// want asks, wants that status, and decodes the answer, which must be as the
// schema says.
func want[T any](t testing.TB, s *speaker, status int, schema, method, path, body string) *T {
	t.Helper()
	a := s.ask(t, method, path, body)
	if a.status != status {
		t.Fatalf("%s %s: %d %s, want %d", method, path, a.status, a.body, status)
	}
	if bytes.Contains(a.body, []byte("null")) {
		t.Errorf("%s %s answers with a null: %s", method, path, a.body)
	}
	s.doc.Check(t, schema, a.body)
	reply := new(T)
	if err := json.Unmarshal(a.body, reply); err != nil {
		t.Fatal(err)
	}
	return reply
}

// endpoint finds the route that a request takes.
func endpoint(method, path string) (api.Endpoint, bool) {
	path, _, _ = strings.Cut(path, "?")
	for _, e := range api.Endpoints() {
		got, pattern := strings.Split(path, "/"), strings.Split(e.Path, "/")
		fits := e.Method == method && len(got) == len(pattern)
		for i := 0; fits && i < len(got); i++ {
			fits = got[i] == pattern[i] || strings.HasPrefix(pattern[i], "{")
		}
		if fits {
			return e, true
		}
	}
	return api.Endpoint{}, false
}
