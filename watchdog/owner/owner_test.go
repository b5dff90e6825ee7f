package owner

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"github.com/ipamd/ipamd/internal/ownertest"
	"github.com/ipamd/ipamd/internal/realtest"
	"github.com/ipamd/ipamd/watchdog"
)

const soon = 10 * time.Minute // longer than anything here takes on a machine that stands still now and then

func ask(t *testing.T, cfg Config) *Client {
	t.Helper()
	if cfg.Timeout == 0 {
		cfg.Timeout = soon
	}
	c, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// What an answer means (W5, F8), a row for each way to answer.
func TestF8Judge(t *testing.T) {
	const unknown, valid, gone = watchdog.Unknown, watchdog.Valid, watchdog.Gone
	for name, tt := range map[string]struct {
		answer answer
		want   watchdog.Verdict
	}{
		"time-out":                   {answer{err: context.DeadlineExceeded}, unknown},
		"no process listens":         {answer{err: errors.New("connection refused")}, unknown},
		"cut off":                    {answer{status: 200, body: []byte(`{"id":"a","state":"gone"}`), err: io.ErrUnexpectedEOF}, unknown},
		"cut off before the body":    {answer{status: 200, err: io.ErrUnexpectedEOF}, unknown},
		"no such sandbox, cut off":   {answer{status: 404, err: io.ErrUnexpectedEOF}, unknown},
		"server error":               {answer{status: 500, body: []byte(`{"id":"a","state":"gone"}`)}, unknown},
		"empty server error":         {answer{status: 503}, unknown},
		"moved":                      {answer{status: 301}, unknown},
		"forbidden":                  {answer{status: 403}, unknown},
		"accepted, later perhaps":    {answer{status: 202}, unknown},
		"no such sandbox":            {answer{status: 404, body: []byte("no such sandbox")}, unknown},
		"a bare 404":                 {answer{status: 404}, unknown},
		"a bare 410":                 {answer{status: 410}, unknown},
		"a router's JSON":            {answer{status: 404, body: []byte(`{"error":"not found"}`)}, unknown},
		"404 and the word":           {answer{status: 404, body: []byte(`{"id":"a","state":"gone"}`)}, gone},
		"410 and the word":           {answer{status: 410, body: []byte(`{"id":"a","state":"gone"}`)}, gone},
		"404 about another":          {answer{status: 404, body: []byte(`{"id":"b","state":"gone"}`)}, unknown},
		"404, and valid":             {answer{status: 404, body: []byte(`{"id":"a","state":"valid"}`)}, unknown},
		"nothing to say":             {answer{status: 204}, unknown},
		"204 with the word":          {answer{status: 204, body: []byte(`{"id":"a","state":"gone"}`)}, unknown},
		"empty":                      {answer{status: 200}, unknown},
		"blank":                      {answer{status: 200, body: []byte(" \r\n")}, unknown},
		"null":                       {answer{status: 200, body: []byte("null\n")}, unknown},
		"empty object":               {answer{status: 200, body: []byte(" { } \n")}, unknown},
		"valid":                      {answer{status: 200, body: []byte(`{"id":"a","state":"valid"}`)}, valid},
		"gone":                       {answer{status: 200, body: []byte(`{"id":"a","state":"gone"}`)}, gone},
		"gone, between blanks":       {answer{status: 200, body: []byte("\n{\"id\":\"a\", \"state\":\"gone\"} \n")}, gone},
		"gone, and more about it":    {answer{status: 200, body: []byte(`{"state":"gone","since":[1,{}],"id":"a"}`)}, gone},
		"another sandbox":            {answer{status: 200, body: []byte(`{"id":"A","state":"gone"}`)}, unknown},
		"which sandbox is not said":  {answer{status: 200, body: []byte(`{"state":"gone"}`)}, unknown},
		"no state":                   {answer{status: 200, body: []byte(`{"id":"a"}`)}, unknown},
		"unknown state":              {answer{status: 200, body: []byte(`{"id":"a","state":"stopping"}`)}, unknown},
		"another spelling":           {answer{status: 200, body: []byte(`{"id":"a","state":"Gone"}`)}, unknown},
		"another spelling of a name": {answer{status: 200, body: []byte(`{"id":"a","State":"gone"}`)}, unknown},
		"two states":                 {answer{status: 200, body: []byte(`{"id":"a","state":"valid","state":"gone"}`)}, unknown},
		"a state that is no word":    {answer{status: 200, body: []byte(`{"id":"a","state":0}`)}, unknown},
		"a list":                     {answer{status: 200, body: []byte(`[{"id":"a","state":"gone"}]`)}, unknown},
		"an empty list":              {answer{status: 200, body: []byte(`[]`)}, unknown},
		"a bare word":                {answer{status: 200, body: []byte(`"gone"`)}, unknown},
		"half a JSON":                {answer{status: 200, body: []byte(`{"id":"a","state":"gone"`)}, unknown},
		"two answers":                {answer{status: 200, body: []byte(`{"id":"a","state":"gone"}{"id":"a","state":"valid"}`)}, unknown},
		"no JSON":                    {answer{status: 200, body: []byte(`gone`)}, unknown},
		"a page":                     {answer{status: 200, body: []byte(`<html>gone</html>`)}, unknown},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := judge("a", tt.answer)
			if got != tt.want || (err != nil) != (got == watchdog.Unknown) {
				t.Errorf("judged %v, %v, want %v", got, err, tt.want)
			}
		})
	}
	if v, err := judge("\xff", answer{status: 200, body: []byte("{\"id\":\"\xff\",\"state\":\"gone\"}")}); v != unknown {
		t.Errorf("broken UTF-8 is %v, %v", v, err)
	}
}

func TestDecodeList(t *testing.T) {
	for name, tt := range map[string]struct {
		body string
		want string // "" for an error
	}{
		"empty":                {`[]`, "[]"},
		"null":                 {` null `, "[]"},
		"all states":           {`[{"id":"a","state":"valid"}, {"id":"b","state":"gone"}, {"id":"c","state":"limbo"}, {"id":"d"}]`, "[{a 1} {b 2} {c 0} {d 0}]"},
		"more about one":       {`[{"id":"a","state":"valid","since":{"x":[]}}]`, "[{a 1}]"},
		"nothing":              {``, ""},
		"cut off at once":      {`[`, ""},
		"cut off in a row":     {`[{"id":"a","state":"valid"},{"id":"b`, ""},
		"cut off between rows": {`[{"id":"a","state":"valid"},`, ""},
		"never ends":           {`[{"id":"a","state":"valid"}`, ""},
		"two lists":            {`[][]`, ""},
		"a word behind it":     {`[] gone`, ""},
		"an object":            {`{"id":"a","state":"valid"}`, ""},
		"empty object":         {`{}`, ""},
		"a row without an id":  {`[{"state":"gone"}]`, ""},
		"a row that is null":   {`[null]`, ""},
		"a row that is a word": {`["a"]`, ""},
		"an id given twice":    {`[{"id":"a","id":"b","state":"gone"}]`, ""},
		"broken UTF-8":         {"[{\"id\":\"\xff\",\"state\":\"valid\"}]", ""},
		"a page":               {`<html>`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			list, err := decodeList(iotest.OneByteReader(strings.NewReader(tt.body)))
			if got := fmt.Sprint(list); (err == nil) != (tt.want != "") || err == nil && got != tt.want {
				t.Errorf("decoded %v, %v, want %q", list, err, tt.want)
			}
			if err != nil && list != nil {
				t.Errorf("an error, and the rows %v", list)
			}
		})
	}
	if _, err := decodeList(io.MultiReader(strings.NewReader(`[]`), iotest.ErrReader(io.ErrUnexpectedEOF))); err == nil {
		t.Error("a list whose body breaks after its last bracket is whole")
	}
}

// The reference server, over its real socket, with names that a path would
// rather not hold.
func TestAsksTheReferenceServer(t *testing.T) {
	o := ownertest.Start(t)
	var verdicts []watchdog.Verdict
	c := ask(t, Config{Socket: o.Socket, OnLookup: func(v watchdog.Verdict) { verdicts = append(verdicts, v) }})
	names := []string{"a", ".", "..", "...", "a/b", "../a", "a//b", "%2F", "a?b=c#d", "ä ö", "a;b&c+d", "/", "\x01\x7f", "a\\b", strings.Repeat("x", 253)}
	o.Set("valid", names...)
	o.Set("gone", "dead", "a/b")
	o.Set("limbo", "odd")
	for _, name := range names {
		want := watchdog.Valid
		if name == "a/b" {
			want = watchdog.Gone
		}
		if got, err := c.Look(t.Context(), name); got != want || err != nil {
			t.Errorf("%q is %v, %v, want %v", name, got, err, want)
		}
	}
	verdicts = nil
	for _, tt := range []struct {
		name string
		want watchdog.Verdict
	}{{"dead", watchdog.Gone}, {"not known", watchdog.Gone}, {"odd", watchdog.Unknown}, {"", watchdog.Unknown}} {
		if got, err := c.Look(t.Context(), tt.name); got != tt.want || (err != nil) != (got == watchdog.Unknown) {
			t.Errorf("%q is %v, %v, want %v", tt.name, got, err, tt.want)
		}
	}
	if !slices.Equal(verdicts, []watchdog.Verdict{watchdog.Gone, watchdog.Gone, watchdog.Unknown, watchdog.Unknown}) {
		t.Errorf("the hook was called with %v", verdicts)
	}
	list, err := c.List(t.Context())
	if err != nil || len(list) != len(names)+2 || list[0] != (watchdog.Owned{Sandbox: "a", Verdict: watchdog.Valid}) {
		t.Errorf("listed %v, %v", list, err)
	}
	if o.Lists() != 1 || o.Looks() != len(names)+3 {
		t.Errorf("asked for %d lists and %d sandboxes", o.Lists(), o.Looks())
	}
	o.Break()
	if v, err := c.Look(t.Context(), "dead"); v != watchdog.Unknown || err == nil {
		t.Errorf("a broken owner's dead is %v, %v", v, err)
	}
	if list, err := c.List(t.Context()); err == nil {
		t.Errorf("a broken owner lists %v", list)
	}
}

// raw listens on a real socket and writes bytes as they are.
func raw(t *testing.T, answer func(net.Conn)) (socket string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "owner-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	socket = filepath.Join(dir, "o.sock")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			running.Go(func() {
				defer c.Close()
				if _, err := c.Read(make([]byte, 4096)); err == nil {
					answer(c)
				}
			})
		}
	})
	t.Cleanup(func() { l.Close(); running.Wait() })
	return socket
}

// What arrives broken, on a real socket.
func TestBrokenAnswers(t *testing.T) {
	const gone = `{"id":"a","state":"gone"}`
	for name, tt := range map[string]struct {
		bytes string
		want  watchdog.Verdict
	}{
		"whole":                     {"HTTP/1.1 200 OK\r\nContent-Length: 25\r\n\r\n" + gone, watchdog.Gone},
		"empty":                     {"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", watchdog.Unknown},
		"empty, in chunks":          {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", watchdog.Unknown},
		"ends with the connection":  {"HTTP/1.0 200 OK\r\n\r\n" + gone, watchdog.Gone},
		"empty, as far as one sees": {"HTTP/1.0 200 OK\r\n\r\n", watchdog.Unknown},
		"nothing":                   {"", watchdog.Unknown},
		"no HTTP":                   {"gone\r\n\r\n", watchdog.Unknown},
		"cut in the header":         {"HTTP/1.1 200 OK\r\nContent-Le", watchdog.Unknown},
		"cut before the body":       {"HTTP/1.1 200 OK\r\nContent-Length: 25\r\n\r\n", watchdog.Unknown},
		"cut behind the JSON":       {"HTTP/1.1 200 OK\r\nContent-Length: 26\r\n\r\n" + gone, watchdog.Unknown},
		"cut between chunks":        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n19\r\n" + gone + "\r\n", watchdog.Unknown},
		"cut before any chunk":      {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", watchdog.Unknown},
		"compressed":                {"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 2\r\n\r\n\x1f\x8b", watchdog.Unknown},
		"moved to where it is gone": {"HTTP/1.1 302 Found\r\nLocation: /sandboxes/b\r\nContent-Length: 0\r\n\r\n", watchdog.Unknown},
		"a header without an end":   {"HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", headerBytes), watchdog.Unknown},
		"a body that is too large":  {"HTTP/1.1 200 OK\r\nContent-Length: 1048602\r\n\r\n" + gone + strings.Repeat(" ", oneBytes+1), watchdog.Unknown},
	} {
		t.Run(name, func(t *testing.T) {
			c := ask(t, Config{Socket: raw(t, func(c net.Conn) { _, _ = io.WriteString(c, tt.bytes) })})
			got, err := c.Look(t.Context(), "a")
			if got != tt.want || (err != nil) != (got == watchdog.Unknown) {
				t.Errorf("it is %v, %v, want %v", got, err, tt.want)
			}
			if err != nil && (!strings.Contains(err.Error(), `sandbox "a"`) || strings.Contains(err.Error(), "http://")) {
				t.Errorf("it says %q", err)
			}
			if list, err := c.List(t.Context()); err == nil {
				t.Errorf("as a list it is %v", list)
			}
		})
	}
}

// An owner that accepts and says nothing, one that stops in mid-answer, and
// none at all: the timeout ends the question, and so does its context.
func TestNoAnswer(t *testing.T) {
	hang := make(chan struct{})
	silent := raw(t, func(net.Conn) { <-hang })
	stuck := raw(t, func(c net.Conn) {
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 25\r\n\r\n")
		<-hang
	})
	t.Cleanup(func() { close(hang) })
	for _, socket := range []string{silent, stuck} {
		c := ask(t, Config{Socket: socket, Timeout: 20 * time.Millisecond})
		if v, err := c.Look(t.Context(), "a"); v != watchdog.Unknown || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("looked up: %v, %v", v, err)
		}
		if list, err := c.List(t.Context()); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("listed: %v, %v", list, err)
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if v, err := ask(t, Config{Socket: socket}).Look(ended, "a"); v != watchdog.Unknown || !errors.Is(err, context.Canceled) {
			t.Errorf("looked up without a sandbox: %v, %v", v, err)
		}
	}
	c := ask(t, Config{Socket: filepath.Join(t.TempDir(), "missing")})
	if v, err := c.Look(t.Context(), "a"); v != watchdog.Unknown || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("looked up at a missing socket: %v, %v", v, err)
	}
}

// A list is bounded, and a large one is read whole.
func TestLargeLists(t *testing.T) {
	realtest.Long(t)
	const row = `{"id":"a","state":"valid"}`
	list := func(rows int) func(net.Conn) {
		return func(c net.Conn) {
			_, _ = io.WriteString(c, "HTTP/1.0 200 OK\r\n\r\n["+strings.Repeat(row+",", rows-1)+row+"]")
		}
	}
	if got, err := ask(t, Config{Socket: raw(t, list(100_000))}).List(t.Context()); err != nil || len(got) != 100_000 {
		t.Errorf("listed %d, %v", len(got), err)
	}
	var large *http.MaxBytesError
	if got, err := ask(t, Config{Socket: raw(t, list(listBytes/len(row)))}).List(t.Context()); !errors.As(err, &large) || got != nil {
		t.Errorf("listed %d, %v, beyond the bound", len(got), err)
	}
}

func TestBadConfig(t *testing.T) {
	for _, cfg := range []Config{{Timeout: 1}, {Socket: "/o"}, {Socket: "/o", Timeout: -1}} {
		if _, err := New(cfg); err == nil {
			t.Errorf("%+v is taken", cfg)
		}
	}
}
