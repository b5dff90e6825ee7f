package watchdog

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/ipamd/ipamd/netdb"
)

// InstanceBook is what an [Instance] needs of the lease book.
type InstanceBook interface {
	Rev() int64
	Runtime() string
	NoteRuntime(ctx context.Context, who netdb.Who, id string, anyway bool) error
	Leases() (rows []*netdb.Lease, rev int64)
}

// An Instance knows in which runtime the book's containers are, and which one
// answers. A containerd on another address, or with a new disk, says of every
// container that it is not there; each look-up would confirm a removal, and all
// of them may run. So "not there" counts only from the runtime that the book
// knows. What another one shows counts all the same: it keeps addresses.
//
// It is safe for concurrent use.
type Instance struct {
	book InstanceBook
	log  *slog.Logger

	// noting is held by Meet and Accept, which wait for the book, and is taken
	// before mu, which nobody waits with: passes and doctor read under it.
	noting sync.Mutex
	rev    int64           // of the book when it refused; guarded by noting, as are the next two
	losing map[string]bool // namespaces that the runtime has lost
	lost   map[string]bool // the same, and an operator has accepted it

	mu      sync.Mutex
	met     string // the runtime that answered last; "" is none yet
	refused *OtherRuntime
}

// NewInstance returns an Instance that has met nobody yet.
func NewInstance(book InstanceBook, log *slog.Logger) *Instance {
	return &Instance{book: book, log: log}
}

// An OtherRuntime is the refusal to believe a runtime that something is not
// there.
type OtherRuntime struct {
	Known, Met string    // ids
	Since      time.Time // when it was met first
}

func (o *OtherRuntime) Error() string {
	return fmt.Sprintf("another runtime answers, %s, than the one that the containers are in, %s: its word that one is gone proves nothing until an operator confirms it",
		o.Met, o.Known)
}

// Meet takes note of the runtime that answers. The first one is written into
// the book, and another one while no lease records a container; else the error
// is [OtherRuntime], for as long as that one answers and nobody has confirmed
// it. Any other error means that the book could not write it down, and that the
// runtime's word is not to be taken either.
func (i *Instance) Meet(ctx context.Context, id string) error {
	i.noting.Lock()
	defer i.noting.Unlock()
	known, rev := i.book.Runtime(), i.book.Rev()
	if known == id {
		i.believe(id)
		return nil
	}
	if old := i.answers(id); old != nil && i.rev == rev {
		return old // nothing has changed that could have made it the book's
	}
	ctx, cancel := context.WithTimeout(ctx, noteWithin)
	defer cancel()
	err := i.book.NoteRuntime(ctx, netdb.Who{Actor: netdb.ByWatchdog}, id, false)
	switch {
	case errors.Is(err, netdb.ErrOtherRuntime):
		i.rev = rev
		return i.refuse(known, id)
	case err != nil:
		return err
	}
	i.believe(id)
	i.log.Info("runtime noted", "runtime", id, "before", known)
	return nil
}

// answers notes which runtime answered last, and returns its refusal, if it is
// refused already.
func (i *Instance) answers(id string) *OtherRuntime {
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
func (i *Instance) refuse(known, id string) *OtherRuntime {
	if old := i.answers(id); old != nil {
		return old
	}
	refused := &OtherRuntime{Known: known, Met: id, Since: time.Now()}
	i.mu.Lock()
	i.refused = refused
	i.mu.Unlock()
	i.log.Warn("another runtime answers: nothing is let go on its word", "known", known, "answers", id,
		"next", "ipamctl doctor")
	return refused
}

// Has takes note of the namespaces that the runtime has. A namespace outlives its
// containers, so one that has none of those in which leases record containers has
// lost its metadata, whatever its id: it says of every container that it is not
// there, and all of them may run. The book's runtime is then the one from before
// the loss, and this one is as good as another until an operator confirms it.
//
// That the containers are gone and their namespace is there is no loss: so fifty
// that were removed while nobody looked end. What this does not see is metadata
// lost, and the namespace made anew, before anybody asked. An error means that the
// book could not write it down, and that what the runtime shows is not to be taken.
func (i *Instance) Has(ctx context.Context, id string, namespaces []string) error {
	i.noting.Lock()
	defer i.noting.Unlock()
	i.losing = nil
	missing := make(map[string]bool)
	rows, _ := i.book.Leases()
	for _, l := range rows {
		if !l.State.Open() && l.State != netdb.Releasing {
			continue
		}
		for _, c := range l.Containers {
			if slices.Contains(namespaces, c.Namespace) {
				return nil
			}
			if !i.lost[c.Namespace] {
				missing[c.Namespace] = true
			}
		}
	}
	if i.losing = missing; len(missing) == 0 || i.book.Runtime() != id {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, noteWithin)
	defer cancel()
	before := id + metadataLost
	if err := i.book.NoteRuntime(ctx, netdb.Who{Actor: netdb.ByWatchdog}, before, true); err != nil {
		return fmt.Errorf("note that containerd has lost its metadata: %w", err)
	}
	i.log.Warn("the runtime has lost its metadata: nothing is released on its word", "runtime", id,
		"namespaces", slices.Sorted(maps.Keys(missing)), "next", "ipamctl doctor")
	return nil
}

// metadataLost stands behind the id of a runtime from before it lost its metadata.
const metadataLost = " before it lost its metadata"

// Other returns the runtime that is not believed; nil when the one that
// answered last is the book's, or none has yet.
func (i *Instance) Other() *OtherRuntime {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.refused
}

// Changed is [Instance.Other] as an error.
func (i *Instance) Changed() error {
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
	if err := i.book.NoteRuntime(ctx, netdb.Who{Actor: netdb.ByOperator}, met, true); err != nil {
		return err
	}
	i.believe(met)
	i.lost, i.losing = i.losing, nil
	i.log.Warn("runtime noted on an operator's word", "runtime", met, "before", refused.Known)
	return nil
}
