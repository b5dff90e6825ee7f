package watchdog

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/netdb"
	"github.com/ipamd/ipamd/netdb/netdbtest"
)

// F26: a runtime has lost its metadata when it has none of the namespaces of which it
// showed a recorded container until now. A namespace that is made and recorded behind
// the list, one that is recorded and not made yet, and one that is removed after its
// container are no loss. The mark goes by itself with a recorded container that is
// there again, not with one that was made since, and outlives the daemon.
func TestF26WhatIsNoLossOfMetadata(t *testing.T) {
	const id = "uuid"
	made := time.Now().Add(-time.Hour)
	type steps struct {
		*testing.T
		i     *Instance
		book  *netdb.Book
		board *census.Board
	}
	bind := func(s steps, name string) {
		l := netdbtest.Reserve(s, s.book, name)
		if _, err := s.book.Bind(ctx, netdbtest.Who(ipam.ByClient, "bound"), l.ID, 0, ipam.Binding{Containers: []ipam.Container{{Namespace: "tenant", ID: name}}}); err != nil {
			s.Fatal(err)
		}
	}
	has := func(s steps, behind func(), namespaces ...string) {
		s.Helper()
		if err := s.i.CheckNamespaces(ctx, id, func(context.Context) ([]string, error) {
			if behind != nil {
				behind()
			}
			return namespaces, nil
		}); err != nil {
			s.Fatal(err)
		}
	}
	show := func(s steps, made time.Time, names ...string) {
		s.Helper()
		all := make(map[string][]census.Sighting)
		for _, name := range names {
			all["tenant/"+name] = []census.Sighting{{Namespace: "tenant", Container: name, At: made}}
		}
		s.board.Replace(census.Runtime, all, nil)
		if err := s.i.CheckContainers(ctx, id); err != nil {
			s.Fatal(err)
		}
	}
	lose := func(s steps) {
		bind(s, "c1")
		has(s, nil, "tenant")
		show(s, made, "c1")
		has(s, nil)
		if s.i.Meet(ctx, id) == nil {
			s.Fatal("a loss is believed")
		}
		show(s, made)
	}
	for name, tt := range map[string]struct {
		do   func(steps)
		lost bool
	}{
		"made and recorded behind the list": {func(s steps) {
			has(s, func() { bind(s, "c1"); show(s, made, "c1") })
		}, false},
		"recorded and not made yet": {func(s steps) { bind(s, "c1"); has(s, nil); has(s, nil, "other") }, false},
		"removed after its container": {func(s steps) {
			bind(s, "c1")
			has(s, nil, "tenant")
			show(s, made, "c1")
			s.board.ReplaceScope(census.Runtime, "tenant/c1", nil)
			has(s, nil)
		}, false},
		"lost": {lose, true},
		"lost, and the daemon is another": {func(s steps) {
			lose(s)
			s.i = NewInstance(s.book, s.board, slog.New(slog.DiscardHandler))
			has(s, nil)
		}, true},
		"lost, and a new container is there": {func(s steps) {
			lose(s)
			bind(s, "c2")
			has(s, nil, "tenant")
			show(s, time.Now(), "c2")
		}, true},
		"lost, and back": {func(s steps) { lose(s); has(s, nil, "tenant"); show(s, made, "c1") }, false},
		"lost, and confirmed": {func(s steps) {
			lose(s)
			if err := s.i.Accept(ctx); err != nil {
				s.Fatal(err)
			}
			has(s, nil)
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := steps{T: t, book: netdbtest.Open(t), board: census.NewBoard(census.Runtime)}
			s.i = NewInstance(s.book, s.board, slog.New(slog.DiscardHandler))
			if err := s.i.Meet(ctx, id); err != nil {
				t.Fatal(err)
			}
			tt.do(s)
			if err := s.i.Meet(ctx, id); (err != nil) != tt.lost {
				t.Errorf("met: %v, lost %v", err, tt.lost)
			}
		})
	}
}

// What the book has of a runtime is read as it was written, also in the words in
// which books of before have a loss of metadata.
func TestF26HowTheBookHasARuntime(t *testing.T) {
	whole := time.Date(2026, 7, 1, 9, 8, 7, 6, time.UTC)
	for name, tt := range map[string]struct {
		stored, said string
		known        KnownRuntime
		before       bool // it is not written like that any more
	}{
		"none":       {"", "", KnownRuntime{}, false},
		"an id":      {"uuid", "uuid", KnownRuntime{ID: "uuid"}, false},
		"lost":       {"uuid metadata-whole-until=2026-07-01T09:08:07.000000006Z", "uuid before it lost its metadata, last seen whole at 2026-07-01T09:08:07.000000006Z", KnownRuntime{"uuid", true, whole}, false},
		"never seen": {"uuid metadata-whole-until=0001-01-01T00:00:00Z", "uuid before it lost its metadata", KnownRuntime{"uuid", true, time.Time{}}, false},
		"a sentence": {"uuid before it lost its metadata, whole at 2026-07-01T09:08:07.000000006Z", "uuid before it lost its metadata, last seen whole at 2026-07-01T09:08:07.000000006Z", KnownRuntime{"uuid", true, whole}, true},
		"no time":    {"uuid metadata-whole-until=noon", "uuid metadata-whole-until=noon", KnownRuntime{ID: "uuid metadata-whole-until=noon"}, false},
	} {
		known := readKnown(tt.stored)
		if known != tt.known || known.String() != tt.said {
			t.Errorf("%s: %+v, %q", name, known, known)
		}
		if again := known.stored(); again != tt.stored && !tt.before || readKnown(again) != known {
			t.Errorf("%s: written as %q", name, again)
		}
	}
}

// A loss that an ipamd of before wrote down holds, and ends with a recorded container
// that is there again.
func TestF26ALossThatABookOfBeforeHas(t *testing.T) {
	const id = "uuid"
	whole := time.Now()
	book, board := netdbtest.Open(t), census.NewBoard(census.Runtime)
	l := netdbtest.Reserve(t, book, "c1")
	if _, err := book.Bind(ctx, netdbtest.Who(ipam.ByClient, "bound"), l.ID, 0, ipam.Binding{Containers: []ipam.Container{{Namespace: "tenant", ID: "c1"}}}); err != nil {
		t.Fatal(err)
	}
	before := id + " before it lost its metadata, whole at " + whole.UTC().Format(time.RFC3339Nano)
	if err := book.NoteRuntime(ctx, ipam.Who{Actor: ipam.ByWatchdog}, before, true); err != nil {
		t.Fatal(err)
	}
	i := NewInstance(book, board, slog.New(slog.DiscardHandler))
	for _, back := range []bool{false, true} {
		made := whole.Add(time.Minute)
		if back {
			made = whole.Add(-time.Minute)
			board.Replace(census.Runtime, nil, nil) // the board dates what it has seen by the first time
		}
		board.Replace(census.Runtime, map[string][]census.Sighting{"tenant/c1": {{Namespace: "tenant", Container: "c1", At: made}}}, nil)
		if err := i.CheckContainers(ctx, id); err != nil {
			t.Fatal(err)
		}
		if err := i.Meet(ctx, id); (err == nil) != back {
			t.Errorf("back %v: %v", back, err)
		}
	}
	if book.Runtime() != id {
		t.Errorf("the book has %q", book.Runtime())
	}
}
