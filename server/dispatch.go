package server

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"path"
	"runtime/debug"
	"strings"
	"time"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/internal/share"
	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/server/admission"
)

// routes makes the mux. A path that is known answers other methods with 405.
func (s *Server) routes() (*http.ServeMux, error) {
	mux, todo := http.NewServeMux(), s.handlers()
	methods := make(map[string][]string)
	for _, e := range api.Endpoints() {
		h, ok := todo[e.Verb]
		if !ok {
			return nil, fmt.Errorf("make the server: no handler answers %s", e.Verb)
		}
		delete(todo, e.Verb)
		methods[e.Path] = append(methods[e.Path], e.Method)
		mux.HandleFunc(e.Method+" "+e.Path, func(w http.ResponseWriter, r *http.Request) {
			s.serve(&call{server: s, w: w, r: r, peer: peerOf(r), end: &e, unread: r.ContentLength != 0}, h)
		})
	}
	for verb := range todo {
		return nil, fmt.Errorf("make the server: no route leads to %s", verb)
	}
	for path, allowed := range methods {
		allow := strings.Join(allowed, ", ")
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Allow", allow)
			s.unrouted(w, r, &methodError{r.Method, path, allow})
		})
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		s.unrouted(w, r, fmt.Errorf("no such path %q: %w", r.URL.Path, ipam.ErrNotFound))
	})
	return mux, nil
}

// ServeHTTP answers one request. A path that the mux would redirect to its
// clean form is a wrong argument: a release with an empty id must not receive
// not_found, which reads as done.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if conn := connOf(r); conn != nil && !conn.Begin() {
		panic(http.ErrAbortHandler) // closed in between: no caller would receive the outcome
	}
	if p := r.URL.EscapedPath(); path.Clean(p) != p {
		s.unrouted(w, r, field("path", "%q has an empty part, or one of dots", p))
		return
	}
	s.mux.ServeHTTP(w, r)
}

// unrouted answers a request that no route takes. No role is needed for that
// answer, but a peer without any role learns only that it has none.
func (s *Server) unrouted(w http.ResponseWriter, r *http.Request, err error) {
	c := &call{server: s, w: w, r: r, peer: peerOf(r), end: &api.Endpoint{Verb: "unknown", Least: api.Reader}, unread: r.ContentLength != 0}
	s.serve(c, func(*call) (int, any, error) { return 0, nil, err })
}

// serve answers one call, whatever happens in it.
func (s *Server) serve(c *call, h handler) {
	begun := time.Now()
	var code api.Code
	defer c.leave()
	defer func() {
		p := recover()
		if p != nil && p != http.ErrAbortHandler {
			with, stack := p, debug.Stack()
			if of, is := p.(*share.Panic); is {
				with, stack = of.With, of.Stack
			}
			s.cfg.Log.Error("a call panicked", "verb", c.end.Verb, "panic", with, "stack", string(stack))
			if c.cut = api.Internal; !c.answering {
				s.fail(c, errPanic)
				p = nil
			}
		}
		took := time.Since(begun)
		if !c.streaming.IsZero() {
			took = c.streaming.Sub(begun)
		}
		s.cfg.Observe(string(c.end.Verb), cmp.Or(c.cut, code), took)
		if p != nil {
			panic(http.ErrAbortHandler) // half an answer must not read as a whole one
		}
	}()
	status, reply, err := s.admit(c, h)
	switch {
	case err != nil:
		code = s.fail(c, err)
	case status != 0:
		code = s.reply(c, status, reply)
	}
}

var errPanic = errors.New("a call panicked")

// admit asks whether the peer may, and may now, before anything of the body is
// read.
func (s *Server) admit(c *call, h handler) (_ int, _ any, err error) {
	if c.release, err = s.admission.Enter(c.peer, cost(c)); err != nil {
		c.linger()
		return 0, nil, err
	}
	if !c.peer.Role.Includes(c.end.Least) {
		return 0, nil, &deniedError{c.peer, c.end}
	}
	if c.end.Method == http.MethodGet && len(c.end.Query) == 0 {
		if err := c.plain(); err != nil {
			return 0, nil, err
		}
	}
	if !c.unread || c.end.Method == http.MethodGet { // else once it is read
		if err := c.takeSlot(); err != nil {
			return 0, nil, err
		}
	}
	return h(c)
}

func connOf(r *http.Request) *admission.Conn {
	conn, _ := r.Context().Value(connKey).(*admission.Conn)
	return conn
}

func peerOf(r *http.Request) *admission.Peer {
	if conn := connOf(r); conn != nil {
		return conn.Peer
	}
	return &admission.Peer{Name: "unknown", Holder: admission.Unidentified, Why: "is not on a socket of ours"}
}
