package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"
)

// A sandbox is what an answer says of one. State is "valid" or "gone"; ipamd keeps
// what has any other.
type sandbox struct {
	ID    string `json:"id"`
	State string `json:"state"`
}

// A handler answers from a file.
type handler struct {
	file string
	lag  time.Duration // how old the list may be
	now  func() time.Time

	mu   sync.Mutex
	list []sandbox // as it was at read
	read time.Time
}

func (h *handler) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /sandboxes", h.all)
	mux.HandleFunc("GET /sandboxes/{id...}", h.one) // {id} would not match the escaped name "/"
	return mux
}

// all answers with the list, which may lag.
func (h *handler) all(w http.ResponseWriter, _ *http.Request) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if now := h.now(); h.read.IsZero() || now.Sub(h.read) >= h.lag {
		list, err := readFile(h.file)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		h.list, h.read = list, now
	}
	answer(w, h.list)
}

// one answers about one sandbox, and reads the file for it: this answer may
// not lag. That one is gone is an answer of its own, with the id: a bare 404, which
// any misconfigured server sends, ends no lease. The
// router has undone the escaping of the id.
func (h *handler) one(w http.ResponseWriter, r *http.Request) {
	list, err := readFile(h.file)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	id := r.PathValue("id")
	if id == "" {
		http.Error(w, "which sandbox?", http.StatusNotFound)
		return
	}
	for _, s := range list {
		if s.ID == id {
			answer(w, s)
			return
		}
	}
	answer(w, sandbox{ID: id, State: "gone"})
}

func answer(w http.ResponseWriter, what any) {
	w.Header().Set("Content-Type", "application/json")
	// A client that hung up gets no answer, which ends no lease.
	_ = json.NewEncoder(w).Encode(what)
}

// readFile reads lines of an id and a state. The state is the last word; the
// id is all before it, blanks included. It never returns nil without an error:
// JSON would make null of it.
func readFile(path string) ([]sandbox, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	list := []sandbox{}
	lines := bufio.NewScanner(f)
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimRight(lines.Text(), " \t\r")
		if line == "" {
			continue
		}
		at := strings.LastIndexAny(line, " \t")
		if at <= 0 {
			return nil, fmt.Errorf("%s:%d: want an id, a blank and a state", path, n)
		}
		list = append(list, sandbox{line[:at], line[at+1:]})
	}
	return list, lines.Err()
}
