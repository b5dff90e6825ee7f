package netdb

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
)

// ErrOtherRuntime means that the book's containers are in another container
// runtime than the one that answers now.
var ErrOtherRuntime = errors.New("it is not the container runtime that the book knows")

// NoteRuntime records which container runtime answers. The first one is noted
// at once, and another one while no lease that is open or releasing records a
// container: then there is nothing that it could be wrong about. Else the
// answer is [ErrOtherRuntime], unless anyway says that a person has decided.
//
// A runtime that was pointed elsewhere, or that lost its disk, answers of every
// container that it is not there, each by a look-up, and all of them may run.
func (b *Book) NoteRuntime(ctx context.Context, who Who, id string, anyway bool) error {
	if id == "" {
		return invalid("runtime id", "is empty")
	}
	return b.writer.update(ctx, func(t *tx) error {
		was := t.runtime()
		if was == id {
			return nil
		}
		who := who
		who.Reason = "runtime_replaced"
		switch {
		case was == "":
			who.Reason = "runtime_met"
		case !anyway && t.records():
			return fmt.Errorf("note runtime %s: %w, %s", id, ErrOtherRuntime, was)
		}
		ids, err := json.Marshal([]map[string]string{{"was": was, "is": id}})
		if err != nil {
			panic(err) // strings always marshal
		}
		t.staged.stage(step{runtime: id, change: &Change{Rev: t.staged.rev + 1, At: t.now, Subject: OfBook, Who: who, Evidence: ids}})
		return nil
	})
}

// runtime returns the id that is staged last, or the committed one.
func (t *tx) runtime() string {
	return cmp.Or(t.staged.runtime, t.idx.runtime)
}

// records reports whether any lease that is open or releasing records a
// container.
func (t *tx) records() bool {
	for _, layer := range []map[string]*Lease{t.staged.ids, t.idx.byID} {
		for id := range layer {
			l := t.lease(id)
			if l != nil && (l.State.Open() || l.State == Releasing) && len(l.Containers) > 0 {
				return true
			}
		}
	}
	return false
}
