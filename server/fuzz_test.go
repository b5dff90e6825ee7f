package server_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/internal/apidoc"
)

// FuzzRequest asks a real server with a real book any verb, of a lease or an
// address in any state or of none, with any query and any body (S3). It holds:
//   - an answer comes, with a status and a body that openapi.yaml has for it;
//   - a refusal has a code that its route lists, the code's own status, a
//     message, and the field when it is about one; never is it internal;
//   - a refusal and a reading change nothing, nor does the same request again;
//   - the server goes on answering, and the book's every invariant stands.
func FuzzRequest(f *testing.F) {
	doc := apidoc.Load(f, "../api/openapi.yaml")
	ends := api.Endpoints()
	others := []string{"GET", "POST", "HEAD", "PUT", "DELETE", "OPTIONS"} // of a path that is given
	for _, seed := range requestSeeds() {
		verb := slices.IndexFunc(ends, func(e api.Endpoint) bool { return e.Verb == seed.verb })
		if verb < 0 {
			verb = len(ends) + slices.Index(others, string(seed.verb))
		}
		for subject := range seed.subjects {
			f.Add(uint8(verb), uint8(subject), seed.given, seed.query, []byte(seed.body))
		}
	}
	var w *world // made anew for the input after one that changed it
	f.Cleanup(func() {
		if w != nil {
			w.end(f)
		}
	})
	f.Fuzz(func(t *testing.T, verb, subject uint8, given, query string, body []byte) {
		if w == nil {
			w = newWorld(t, doc)
		}
		ask := request{query: query, body: body}
		if int(verb) < len(ends) {
			e := ends[verb]
			ask.method, ask.path = e.Method, strings.NewReplacer("{id}", pick(w.ids, subject, given),
				"{ip}", pick(w.addrs, subject, given), "{name}", pick([]string{"default"}, subject, given)).Replace(e.Path)
			ask.query = strings.ReplaceAll(query, poolUID, w.Book.Pools()[0].UID)
			ask.body = bytes.ReplaceAll(body, []byte(poolUID), []byte(w.Book.Pools()[0].UID))
		} else {
			ask.method, ask.path = others[(int(verb)-len(ends))%len(others)], "/"+strings.TrimPrefix(given, "/")
		}
		before := w.Book.Rev()
		got := w.try(t, ask)
		after := w.Book.Rev()
		e, known := endpoint(ask.method, ask.path)
		if after != before && (got.status >= 300 || !known || !e.Mutates) {
			t.Fatalf("%v answered %d %s, and the book went from revision %d to %d", ask, got.status, got.body, before, after)
		}
		if known && e.Mutates {
			w.try(t, ask)
			if w.Book.Rev() != after {
				t.Fatalf("%v answered %d %s; asked again it changed the book again", ask, got.status, got.body)
			}
		}
		if alive := w.try(t, request{method: "GET", path: "/healthz"}); alive.status != http.StatusOK {
			t.Fatalf("after %v /healthz says %d", ask, alive.status)
		}
		if got.status < 300 && known && e.Mutates {
			w.end(t)
			w = nil
		}
	})
}

// poolUID stands for the uid of the world's pool in a query or a body.
const poolUID = "POOL-UID"

// A requestSeed is asked of the first so many subjects; what is no verb of
// ours is a method, and given the path.
type requestSeed struct {
	verb               api.Verb
	subjects           int
	given, query, body string
}

func requestSeeds() []requestSeed {
	const every = 8 // states, and what is given
	var all []requestSeed
	for _, e := range api.Endpoints() {
		subjects := 1
		if strings.Contains(e.Path, "{") {
			subjects = every
		}
		all = append(all, requestSeed{e.Verb, subjects, "0193f2a5-7c1e-7a44-9d0b-3a6a5a0c9b21", "", ""})
	}
	return append(all,
		requestSeed{api.VerbAllocate, 1, "", "", `{"sandbox":"a","uid":"b","attempt":2,"address":"10.8.64.99","bind_within":"5m","labels":{"k":"v"}}`},
		requestSeed{api.VerbAllocate, 1, "", "", `{"sandbox":"bound"}`},
		requestSeed{api.VerbAllocate, 1, "", "", `{"sandbox":"a","address":"10.8.64.3"}`},
		requestSeed{api.VerbAllocate, 1, "", "", `{"sandbox":"a","family":"dual","pool":"default","interface":"eth1"}`},
		requestSeed{api.VerbAllocate, 1, "", "", `{"sandbox":"cancelled","attempt":1}`},
		requestSeed{api.VerbAllocate, 1, "", "", `{"sandbx":1}`},
		requestSeed{api.VerbAllocate, 1, "", "force=1", `{"sandbox":"a"`},
		requestSeed{api.VerbAllocate, 1, "", "", `{"sandbox":"await","labels":{"wait":"60s"}}`},
		requestSeed{api.VerbBind, every, "", "", `{"netns":"/wait"}`},
		requestSeed{api.VerbBind, every, "", "", `{"containers":[{"namespace":"d","id":"c"}],"netns":"/n","host_interface":"veth1","mac":"02:00:00:00:00:01"}`},
		requestSeed{api.VerbRelease, every, "", "", `{"uid":"bound","wait":"1ms"}`},
		requestSeed{api.VerbCancel, 1, "", "", `{"uid":"reserved","attempt":1}`},
		requestSeed{api.VerbCancel, 1, "", "", `{"uid":"later","attempt":3}`},
		requestSeed{api.VerbQuarantine, every, "10.8.64.200", "", `{"reason":"r"}`},
		requestSeed{api.VerbClear, every, "10.9.0.1", "", `{}`},
		requestSeed{api.VerbAdopt, every, "10.8.64.9", "", `{"sandbox":"a","host_interface":"veth1","reason":"r"}`},
		requestSeed{api.VerbReconcile, 1, "", "", `{"preview":true}`},
		requestSeed{api.VerbReconcile, 1, "", "", `{"preview":true,"confirm":true}`},
		requestSeed{api.VerbWhois, every, "fe80::1%eth0", "", ""},
		requestSeed{api.VerbLeases, 1, "", "sandbox=bound&state=bound&pool=default", ""},
		requestSeed{api.VerbLeases, 1, "", "sandbox=%zz;", "\xff"},
		requestSeed{api.VerbChanges, 1, "", "since=2026-01-31T14:05:00Z&limit=10&address=10.8.64.2&sandbox=bound&lease=x", ""},
		requestSeed{api.VerbWatch, 1, "", "since=1&kinds=lease,book", ""},
		requestSeed{api.VerbWatch, 1, "", "epoch=x&since=9999", ""},
		requestSeed{api.VerbApply, 2, "second", "", `{"prefix":"10.9.0.0/24","gateway":"none","bridge":"br1","exclude":["10.9.0.9","10.9.0.16/28"],"mtu":1400}`},
		requestSeed{api.VerbApply, 2, "six", "", `{"prefix":"fd00:8::/64","routes":[{"destination":"fd00:9::/64","via":"fd00:8::9"}],"dns":["fd00::53"],"labels":{"k":"v"}}`},
		requestSeed{api.VerbApply, 1, "", "", `{"prefix":"10.8.64.0/23","generation":7,"cooldown":"1h","cooldown_min":"1m","exhausted":"strict"}`},
		requestSeed{api.VerbApply, 1, "", "", `{"prefix":"10.8.64.0/30","drain":true,"uid":"` + poolUID + `"}`},
		requestSeed{api.VerbApply, 1, "", "", `{"prefix":"10.8.64.0/30","preview":true,"generation":-1}`},
		requestSeed{api.VerbApply, 1, "", "preview=true", `{"prefix":"10.8.64.0/24","exclude":["10.8.64.0/24"]}`},
		requestSeed{api.VerbDrain, 2, "other", "", `{"uid":"` + poolUID + `","generation":1}`},
		requestSeed{api.VerbDrain, 1, "", "", `{"uid":"` + poolUID + `","preview":true}`},
		requestSeed{api.VerbUndrain, 2, "other", "", `{"uid":"` + poolUID + `"}`},
		requestSeed{api.VerbRemove, 2, "other", "uid=" + poolUID + "&mode=drain", ""},
		requestSeed{api.VerbRemove, 1, "", "uid=" + poolUID + "&mode=force&reason=r", ""},
		requestSeed{api.VerbRemove, 1, "", "uid=" + poolUID + "&mode=force&reason=r&preview=true", ""},
		requestSeed{api.VerbRemove, 1, "", "uid=" + poolUID + "&preview=1", ""},
		requestSeed{"GET", 1, "/v1/../leases", ";", "{"},
		requestSeed{"GET", 1, "/v1/leases/\xff", "", ""},
		requestSeed{"HEAD", 1, "/v1/status", "", ""},
		requestSeed{"DELETE", 1, "/v1/leases", "", ""},
		requestSeed{"PUT", 1, "/v1/leases/x/bind/", "", ""},
		requestSeed{"OPTIONS", 1, "*", "", ""},
	)
}

// firstLine is the first line of a stream.
func firstLine(t *testing.T, stream io.Reader) io.Reader {
	t.Helper()
	line, err := bufio.NewReader(stream).ReadBytes('\n')
	if err != nil {
		t.Fatal(err)
	}
	return bytes.NewReader(line)
}

// pick is a part of a path: the subject, or past all of them what is given.
func pick(subjects []string, i uint8, given string) string {
	if int(i) < len(subjects) {
		return subjects[i]
	}
	return given
}

type request struct {
	method, path, query string
	body                []byte
}

// worthWaiting is how long a release may wait here: no removal is confirmed.
const worthWaiting = time.Second

// waits reports whether the request is a release that asks to wait for longer
// than is worth it. Every other one is answered, whatever its body says.
func (ask request) waits() bool {
	var body api.ReleaseRequest
	if e, known := endpoint(ask.method, ask.path); !known || e.Verb != api.VerbRelease || json.Unmarshal(ask.body, &body) != nil {
		return false
	}
	wait, err := time.ParseDuration(string(body.Wait))
	return err == nil && wait > worthWaiting
}

// try asks and holds the answer against the document.
func (w *world) try(t *testing.T, ask request) answer {
	t.Helper()
	patience, waits := soon, ask.waits()
	if waits {
		patience = worthWaiting
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, ask.method, "http://ipamd/", bytes.NewReader(ask.body))
	if err != nil {
		t.Fatal(err)
	}
	req.URL = &url.URL{Scheme: "http", Host: "ipamd", Path: ask.path, RawQuery: ask.query}
	resp, err := w.http.Do(req)
	if waits && errors.Is(err, context.DeadlineExceeded) {
		t.Skip("a release that waits for the confirmation")
	}
	// A connection that is closed on this side is net/http's, when it finds only
	// while it writes that it may not send the request.
	var wire *net.OpError
	broke := errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.As(err, &wire) && !errors.Is(err, net.ErrClosed)
	if err != nil && ctx.Err() == nil && !broke {
		t.Skip("net/http refuses to send it: ", err)
	}
	if err != nil {
		t.Fatalf("%v: no answer: %v", ask, err)
	}
	defer resp.Body.Close()
	a := answer{status: resp.StatusCode, header: resp.Header}
	var body io.Reader = resp.Body
	if ask.method == http.MethodGet && ask.path == "/v1/watch" && resp.StatusCode == http.StatusOK {
		body = firstLine(t, resp.Body) // there is no end
	}
	if a.body, err = io.ReadAll(body); waits && errors.Is(err, context.DeadlineExceeded) {
		t.Skip("a release that waited for nearly as long as one is waited for")
	} else if err != nil {
		t.Fatalf("%v: the answer breaks off: %v", ask, err)
	}
	e, known := endpoint(ask.method, ask.path)
	schemas := documented(w.doc, e)
	schema, listed := schemas[a.status]
	switch {
	case a.status == http.StatusInternalServerError:
		t.Fatalf("%v: %s", ask, a.body)
	case ask.method == http.MethodHead:
	case a.status == http.StatusBadRequest && strings.HasPrefix(a.header.Get("Content-Type"), "text/plain"):
		// net/http's own: it was no HTTP.
	case known && listed:
		if schema != "" {
			w.doc.Check(t, schema, a.body)
		}
	case a.status < 400:
		t.Fatalf("%v: %d is not in the document: %s", ask, a.status, a.body)
	default:
		w.refused(t, ask, &a)
		if known && !slices.Contains(e.Codes, a.err.Code) {
			t.Fatalf("%v: the route does not list %s", ask, a.err.Code)
		}
	}
	return a
}

func (w *world) refused(t *testing.T, ask request, a *answer) {
	t.Helper()
	if err := json.Unmarshal(a.body, &a.err); err != nil || !utf8.Valid(a.body) {
		t.Fatalf("%v: %d %q is no error object: %v", ask, a.status, a.body, err)
	}
	w.doc.Check(t, "Error", a.body)
	exception := a.err.Code == api.InvalidArgument &&
		(a.status == http.StatusMethodNotAllowed && a.header.Get("Allow") != "" || a.status == http.StatusRequestEntityTooLarge)
	switch {
	case a.err.Code == api.Internal || !slices.Contains(api.Codes(), a.err.Code) || a.err.Message == "":
		t.Fatalf("%v: %s", ask, a.body)
	case a.status != a.err.Code.Status() && !exception || a.err.Retryable != a.err.Code.Retryable():
		t.Fatalf("%v: %d %s", ask, a.status, a.body)
	case a.err.Code == api.InvalidArgument && a.err.Details["field"] == nil:
		t.Fatalf("%v: which field? %s", ask, a.body)
	case a.err.Epoch != w.Book.Epoch():
		t.Fatalf("%v: of epoch %s? %s", ask, w.Book.Epoch(), a.body)
	}
}

// documented is what a route answers with when it is no Error: the schema of
// each status, "" where the body is not JSON.
func documented(doc *apidoc.Doc, e api.Endpoint) map[int]string {
	out := make(map[int]string)
	responses, _ := dig(doc.Root, "paths", e.Path, strings.ToLower(e.Method), "responses").(map[string]any)
	for status, r := range responses {
		if ref, ok := dig(r, "$ref").(string); ok {
			r = dig(doc.Root, "components", "responses", ref[strings.LastIndex(ref, "/")+1:])
		}
		code, err := strconv.Atoi(status)
		if err != nil {
			continue // default: an Error
		}
		ref, ok := dig(r, "content", "application/json", "schema", "$ref").(string)
		if !ok {
			ref, _ = dig(r, "content", "application/x-ndjson", "schema", "$ref").(string) // of each line
		}
		out[code] = ref[strings.LastIndex(ref, "/")+1:]
	}
	return out
}

func dig(tree any, names ...string) any {
	for _, name := range names {
		branch, _ := tree.(map[string]any)
		tree = branch[name]
	}
	return tree
}
