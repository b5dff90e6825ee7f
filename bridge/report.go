package bridge

import (
	"errors"
	"log/slog"
	"maps"
	"net/netip"
	"slices"

	"github.com/ipamd/ipamd/census"
)

// A report is what one witness has to say, and its hand on the Board: what it
// sees, scope by scope, and what it could not read. A scope that could not be
// read keeps its earlier sightings, and the witness is silent until it could.
type report struct {
	board  Board
	log    *slog.Logger
	bridge string
	name   census.Witness
	recent *recentlySeen

	scopes  map[string][]census.Sighting
	failed  map[string]error // by scope
	whole   error            // why nothing is complete; nil once everything was read
	posted  string           // the silence that the board has
	absent  bool             // which is for a bridge that is not there, as the log says once for all witnesses
	started bool
}

func newReport(cfg Config, name census.Witness, l *recentlySeen) *report {
	return &report{
		board: cfg.Board, log: cfg.Log, bridge: cfg.Name, name: name, recent: l,
		scopes: make(map[string][]census.Sighting),
		failed: make(map[string]error),
	}
}

// see posts all that one scope holds; nothing means that none is seen there.
func (r *report) see(scope string, seen []census.Sighting) {
	delete(r.failed, scope)
	if slices.Equal(r.scopes[scope], seen) {
		return
	}
	r.noteMoves(r.scopes[scope], seen)
	if len(seen) == 0 {
		delete(r.scopes, scope)
	} else {
		r.scopes[scope] = seen
	}
	r.board.ReplaceScope(r.name, scope, seen)
}

// noteMoves notes the addresses that came or went: one that ends was seen until
// now, and one that stays is on the board.
func (r *report) noteMoves(before, after []census.Sighting) {
	had := make(map[netip.Addr]bool, len(before))
	for _, s := range before {
		had[s.Addr] = true
	}
	for _, s := range after {
		if !had[s.Addr] {
			r.recent.note(s.Addr)
		}
		delete(had, s.Addr)
	}
	for addr := range had {
		r.recent.note(addr)
	}
}

// fail notes that one scope could not be read.
func (r *report) fail(scope string, err error) { r.failed[scope] = err }

// unfail takes back that a scope could not be read; what it held stands.
func (r *report) unfail(scope string) { delete(r.failed, scope) }

// drop forgets a scope that is no more.
func (r *report) drop(scope string) { r.see(scope, nil) }

// keep forgets every scope that is not listed.
func (r *report) keep(listed func(scope string) bool) {
	for scope := range r.failed {
		if !listed(scope) {
			delete(r.failed, scope)
		}
	}
	for scope := range r.scopes {
		if !listed(scope) {
			r.drop(scope)
		}
	}
}

// err is why the witness cannot speak, or nil.
func (r *report) err() error {
	if r.whole != nil || len(r.failed) == 0 { // most often: it is read at each Settle
		return r.whole
	}
	// One is enough to be silent; always the same one, not to seem to change.
	return r.failed[slices.Min(slices.Collect(maps.Keys(r.failed)))]
}

// post brings the board up to date with whether the witness can speak. anew
// puts the whole report there even if nothing seems to have changed.
func (r *report) post(anew bool) error {
	err := r.err()
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text != r.posted {
		r.recent.miss()
	}
	switch {
	case text == r.posted && r.started && !anew:
		return err
	case err == nil:
		r.board.Replace(r.name, r.scopes, nil)
	default:
		r.board.Silence(r.name, err)
	}
	// That nothing is read yet at the start, nor any more at the end, is no news.
	expected, absent := errors.Is(err, errUnread) || errors.Is(err, ErrClosed), errors.Is(err, census.ErrNoBridge)
	switch {
	case text == r.posted || expected || absent || r.absent && err == nil:
	case err != nil:
		r.log.Warn("witness is silent", "witness", r.name, "bridge", r.bridge, "reason", err)
	case r.posted != errUnread.Error():
		r.log.Info("witness answers again", "witness", r.name, "bridge", r.bridge)
	}
	r.posted, r.started, r.absent = text, true, absent
	return err
}
