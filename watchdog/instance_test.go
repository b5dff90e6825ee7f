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
