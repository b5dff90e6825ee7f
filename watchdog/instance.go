package watchdog

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/ipam"
)

// InstanceBook is what an [Instance] needs of the lease book.
type InstanceBook interface {
	Rev() int64
	Runtime() string
	NoteRuntime(ctx context.Context, who ipam.Who, id string, anyway bool) error
	Leases() (rows []*ipam.Lease, rev int64)
}

// An Instance knows in which runtime the book's containers are, and which one
// answers. A containerd on another address, or with a new disk, says of every
// container that it is not there; each look-up would confirm a removal, and all
// of them may run. So "not there" counts only from the runtime that the book
// knows. What another one shows counts all the same: it keeps addresses.
//
// It is safe for concurrent use.
type Instance struct {
	book  InstanceBook
	board *census.Board
	log   *slog.Logger

	// noting is held by those that may wait for the book, and is taken before mu, with which no caller
	// waits: passes and doctor read under it.
	noting sync.Mutex
	rev    int64     // of the book when it refused; guarded by noting, as is the next
	whole  time.Time // when the last list of namespaces began that proved no loss

	mu      sync.Mutex
	met     string // the runtime that answered last; "" is none yet
	refused *OtherRuntime
}

// NewInstance returns an Instance that has met no runtime yet. On the board is what
// was last seen of the runtime.
func NewInstance(book InstanceBook, board *census.Board, log *slog.Logger) *Instance {
	return &Instance{book: book, board: board, log: log}
}

// An OtherRuntime is the refusal to believe a runtime that something is not
// there.
type OtherRuntime struct {
	Known KnownRuntime
	Met   string    // its id
	Since time.Time // when it was met first
}

func (o *OtherRuntime) Error() string {
	return fmt.Sprintf("another runtime answers, %s, than the one that the containers are in, %s: its word that one is gone proves nothing until an operator confirms it",
		o.Met, o.Known)
}

// Meet takes note of the runtime that answers. The first one is written into
// the book, and another one while no lease records a container; else the error
// is [OtherRuntime], for as long as that one answers and no operator has confirmed
// it. Any other error means that the book could not write it down, and that the
// runtime's word is not to be taken either.
func (i *Instance) Meet(ctx context.Context, id string) error {
	i.noting.Lock()
	defer i.noting.Unlock()
	known, rev := readKnown(i.book.Runtime()), i.book.Rev()
	if known.is(id) {
		i.believe(id)
		return nil
	}
	if old := i.refusalOf(id); old != nil && i.rev == rev {
		return old // nothing has changed that could have made it the book's
	}
	ctx, cancel := context.WithTimeout(ctx, noteWithin)
	defer cancel()
	err := i.book.NoteRuntime(ctx, ipam.Who{Actor: ipam.ByWatchdog}, id, false)
	switch {
	case errors.Is(err, ipam.ErrOtherRuntime):
		i.rev = rev
		return i.refuse(known, id)
	case err != nil:
		return err
	}
	i.believe(id)
	i.log.Info("runtime noted", "runtime", id, "before", known.String())
	return nil
}

// refusalOf notes which runtime answered last, and returns its refusal, if it is
// refused already.
func (i *Instance) refusalOf(id string) *OtherRuntime {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.met = id
	if i.refused != nil && i.refused.Met == id {
		return i.refused
	}
	return nil
}

// believe notes that the runtime which answered last is the book's.
func (i *Instance) believe(id string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.met, i.refused = id, nil
}

// refuse notes that the runtime which answered last is another than the book's.
func (i *Instance) refuse(known KnownRuntime, id string) *OtherRuntime {
	if old := i.refusalOf(id); old != nil {
		return old
	}
	refused := &OtherRuntime{Known: known, Met: id, Since: time.Now()}
	i.mu.Lock()
	i.refused = refused
	i.mu.Unlock()
	i.log.Warn("another runtime answers: nothing is released on its word", "known", known.String(), "answers", id,
		"next", "ipamctl doctor")
	return refused
}

// CheckNamespaces asks which namespaces the runtime has, by list. A namespace outlives its
// containers, so a runtime that has none of those in which leases record containers,
// and in which one of these was seen until now, has lost its metadata, whatever its
// id: it says of every container that it is not there, and all of them may run. The
// book's runtime is then the one from before the loss, and this one is as good as
// another until [Instance.CheckContainers] or an operator says otherwise.
//
// A namespace in which no recorded container was seen proves no loss: it may not be
// made yet, or was removed after its last container. The leases are read ahead of
// the list, so that one which is bound in between does not count. What this does not
// see is metadata lost while no ipamd runs, or the namespace made anew before any client
// asked. An error means that the list could not be read or the loss not be written
// down, and that what the runtime shows is not to be taken.
func (i *Instance) CheckNamespaces(ctx context.Context, id string, list func(context.Context) ([]string, error)) error {
	rows, _ := i.book.Leases()
	began := time.Now()
	namespaces, err := list(ctx)
	if err != nil {
		return err
	}
	i.noting.Lock()
	defer i.noting.Unlock()
	missing := i.missing(rows, namespaces)
	if len(missing) == 0 {
		i.whole = began
		return nil
	}
	if !readKnown(i.book.Runtime()).is(id) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, noteWithin)
	defer cancel()
	before := KnownRuntime{ID: id, Lost: true, Whole: i.whole}
	if err := i.book.NoteRuntime(ctx, ipam.Who{Actor: ipam.ByWatchdog}, before.stored(), true); err != nil {
		return fmt.Errorf("note that containerd has lost its metadata: %w", err)
	}
	i.log.Warn("the runtime has lost its metadata: nothing is released on its word", "runtime", id,
		"namespaces", missing, "next", "ipamctl doctor")
	return nil
}

// missing returns the namespaces of recorded containers that were seen until now,
// when none of those that leases record is there.
func (i *Instance) missing(rows []*ipam.Lease, namespaces []string) []string {
	seen := newIndex(onBoard(i.board.By(census.Runtime)))
	missing := make(map[string]bool)
	for c := range inUse(rows) {
		if slices.Contains(namespaces, c.Namespace) {
			return nil
		}
		if seen.there(c) {
			missing[c.Namespace] = true
		}
	}
	return slices.Sorted(maps.Keys(missing))
}

// CheckContainers takes note of what a whole reading of the runtime has posted. A recorded
// container that was made before the metadata was last seen whole is there again
// only with that metadata: so the runtime is the book's again. One that was made
// later proves nothing of those before. An error means that the book could not write
// it down; the next reading tries again.
func (i *Instance) CheckContainers(ctx context.Context, id string) error {
	i.noting.Lock()
	defer i.noting.Unlock()
	known := readKnown(i.book.Runtime())
	if known.ID != id || !known.Lost {
		return nil
	}
	rows, _ := i.book.Leases()
	seen := newIndex(onBoard(i.board.By(census.Runtime)))
	for c := range inUse(rows) {
		if !seen.there(c) || !seen.member(c).Made.Before(known.Whole) {
			continue
		}
		ctx, cancel := context.WithTimeout(ctx, noteWithin)
		defer cancel()
		if err := i.book.NoteRuntime(ctx, ipam.Who{Actor: ipam.ByWatchdog}, id, true); err != nil {
			return fmt.Errorf("note that containerd has its metadata: %w", err)
		}
		i.believe(id)
		i.log.Info("runtime noted", "runtime", id, "before", known.String())
		return nil
	}
	return nil
}

// inUse yields the containers that leases record which may have a workload.
func inUse(rows []*ipam.Lease) iter.Seq[Container] {
	return func(yield func(Container) bool) {
		for _, l := range rows {
			if !l.State.Open() && l.State != ipam.Releasing {
				continue
			}
			for _, c := range l.Containers {
				if !yield(c) {
					return
				}
			}
		}
	}
}

// Other returns the runtime that is not believed; nil when the one that
// answered last is the book's, or none has yet.
func (i *Instance) Other() *OtherRuntime {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.refused
}

// Err is [Instance.Other] as an error.
func (i *Instance) Err() error {
	if o := i.Other(); o != nil {
		return o
	}
	return nil
}

// noteWithin bounds how long a look at the runtime waits for the book.
const noteWithin = time.Second

// Accept makes the runtime that answered last the book's, for an operator who
// has looked.
func (i *Instance) Accept(ctx context.Context) error {
	i.noting.Lock()
	defer i.noting.Unlock()
	i.mu.Lock()
	refused, met := i.refused, i.met
	i.mu.Unlock()
	if refused == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, noteWithin)
	defer cancel()
	if err := i.book.NoteRuntime(ctx, ipam.Who{Actor: ipam.ByOperator}, met, true); err != nil {
		return err
	}
	i.believe(met)
	i.log.Warn("runtime noted on an operator's word", "runtime", met, "before", refused.Known.String())
	return nil
}
