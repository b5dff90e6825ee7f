// Command peers does with other people's allocators what package bench asks
// of ipamd: it fills a store, then allocates, one call after the other or with
// many callers at once, and tells how long each took. Bench runs one process a
// peer and gives it its turns, so that both meet the same weather.
//
// It reads a request a line from its input and writes an answer a line, both
// JSON, until the input ends. Times are nanoseconds. Bench has the same words
// in bench/peer.go; they live in two modules, so that what the peers import
// stays out of the daemon's go.mod.
//
// A peer's choices that cost it time and that ipamd's figures do not pay for
// are made in its favour: no log, no cooldown, leases as short as they can be.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"time"
)

// A store is a peer with what it remembers. Many may call it at once.
type store interface {
	allocate(ctx context.Context, sandbox string) (netip.Addr, error)
	// release does what a user of the peer does to end a sandbox's lease.
	release(ctx context.Context, sandbox string, addr netip.Addr) error
	close() error
}

// An opener makes a store below a directory of its own, with so many addresses
// of the prefix taken, from its third one on.
type opener func(ctx context.Context, dir string, prefix netip.Prefix, taken int) (store, error)

func peers() map[string]opener {
	return map[string]opener{
		"host-local":  openHostLocal,
		"go-ipam":     openGoIPAM,
		"aws":         openAWS,
		"docker":      openDocker,
		"predecessor": openPredecessor,
	}
}

type request struct {
	Do      string        `json:"do"` // open, allocate, grow, crowd
	Store   string        `json:"store"`
	Prefix  netip.Prefix  `json:"prefix"`
	Taken   int           `json:"taken"`
	Calls   int           `json:"calls"` // of one caller; of many together, at the least
	Most    time.Duration `json:"most"`  // no further call after that
	Callers int           `json:"callers"`
	Long    time.Duration `json:"long"`  // many go on until then
	Limit   int           `json:"limit"` // but allocate no more; 0 is no limit
}

type answer struct {
	Error   string          `json:"error,omitempty"`
	Took    []time.Duration `json:"took,omitempty"`
	Calls   int             `json:"calls,omitempty"`
	Failed  int             `json:"failed,omitempty"`
	Elapsed time.Duration   `json:"elapsed,omitempty"`
}

func main() {
	if err := run(context.Background(), os.Args[1:], os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "peers:", err)
		os.Exit(1)
	}
}

// run answers for one peer, whose stores are below a directory.
func run(ctx context.Context, args []string, in io.Reader, out io.Writer) (err error) {
	if len(args) != 2 || peers()[args[0]] == nil {
		return fmt.Errorf("want a peer and a directory, not %q", args)
	}
	s := &session{open: peers()[args[0]], dir: args[1], stores: make(map[string]*filled)}
	defer func() {
		for _, f := range s.stores {
			err = errors.Join(err, f.close())
		}
	}()
	requests, answers := json.NewDecoder(in), json.NewEncoder(out)
	for {
		var r request
		if err := requests.Decode(&r); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("read a request: %w", err)
		}
		a, err := s.answer(ctx, r)
		if err != nil {
			a.Error = err.Error()
		}
		if err := answers.Encode(a); err != nil {
			return fmt.Errorf("write an answer: %w", err)
		}
	}
}

// A session has one peer's stores, by name.
type session struct {
	open   opener
	dir    string
	stores map[string]*filled
}

func (s *session) answer(ctx context.Context, r request) (answer, error) {
	if r.Do == "open" {
		dir := filepath.Join(s.dir, r.Store)
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return answer{}, err
		}
		opened, err := s.open(ctx, dir, r.Prefix, r.Taken)
		if err == nil {
			s.stores[r.Store] = &filled{store: opened, prefix: r.Prefix, taken: r.Taken}
		}
		return answer{}, err
	}
	f := s.stores[r.Store]
	switch {
	case f == nil:
		return answer{}, fmt.Errorf("no store %q is open", r.Store)
	case r.Do == "allocate":
		return f.repeat(ctx, r.Calls, r.Most)
	case r.Do == "grow":
		return f.grow(ctx, r.Callers, load{r.Calls, r.Limit, r.Long}), nil
	case r.Do == "crowd":
		return f.crowd(ctx, r.Callers, load{r.Calls, r.Limit, r.Long}), nil
	}
	return answer{}, fmt.Errorf("cannot %q", r.Do)
}
