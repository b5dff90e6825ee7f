package netdb

import (
	"cmp"
	"os"
	"strings"
	"time"

	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/migrations"
	"github.com/ipamd/ipamd/netdb/index"
)

// Options opens a book. The zero of each is refused unless it says otherwise.
type Options struct {
	// Synchronous is "full" (every acknowledged change survives power loss)
	// or "normal" (it survives kill -9 only).
	Synchronous string
	// RunnerUID names the runner that the book belongs to. Empty: a new book
	// gets a generated one and an old one keeps its own.
	RunnerUID string
	// MachineID is recorded beside it. Empty: /etc/machine-id, if there.
	MachineID string
	// QuarantineShare is how much of a pool may be quarantined without an
	// operator, 0 < share <= 1; at least one address and at most 65 536.
	QuarantineShare float64
	// Tombstone is how long a cancelled attempt stays refused.
	Tombstone time.Duration
	// KeepChanges and KeepFor bound the history: a change leaves when more
	// than so many are newer, or when it is older.
	KeepChanges int
	KeepFor     time.Duration
	// ReadOnly opens a book to look at it: nothing is migrated or written,
	// and changes answer ErrReadOnly.
	ReadOnly bool
	// Now dates changes. Nil: the machine's clocks.
	Now func() ipam.Stamp
	// OnCommit is called with each commit's time and number of requests, before they
	// are answered. The next commit waits for it, so it must not wait. May be nil.
	OnCommit func(took time.Duration, batch int)

	schema         []migrations.Migration // the steps to this build's; nil: all there are. A test has more
	mostFreed      int                    // what a pool's queue of freed addresses has room for; 0: enough. A test has less
	mostTombstones int                    // how many tombstones the book keeps; 0: enough. A test has fewer
	failpoint      func(point string)     // called at named points of a commit, for a test to fail or to wait there; nil: nothing
}

func (o *Options) check() error {
	if o.Now == nil {
		o.Now = ipam.Now
	}
	if o.failpoint == nil {
		o.failpoint = func(string) {}
	}
	o.mostTombstones = cmp.Or(o.mostTombstones, MaxTombstones)
	if o.schema == nil {
		o.schema = migrations.All()
	}
	if o.MachineID == "" {
		id, _ := os.ReadFile("/etc/machine-id") // not every root file system has one
		o.MachineID = strings.TrimSpace(string(id))
	}
	switch {
	case o.Synchronous != "full" && o.Synchronous != "normal":
		return ipam.Invalid("synchronous", "%q is neither full nor normal", o.Synchronous)
	case o.QuarantineShare <= 0 || o.QuarantineShare > 1:
		return ipam.Invalid("quarantine share", "%v is not above 0 and up to 1", o.QuarantineShare)
	case o.Tombstone <= 0:
		return ipam.Invalid("tombstone", "%v is not a positive duration", o.Tombstone)
	case o.KeepChanges <= 0 || o.KeepFor <= 0:
		return ipam.Invalid("changes kept", "neither count (%d) nor age (%v) may be zero", o.KeepChanges, o.KeepFor)
	}
	return nil
}

// index is what the index of a book needs of them.
func (o *Options) index() *index.Options {
	return &index.Options{QuarantineShare: o.QuarantineShare, MostFreed: cmp.Or(o.mostFreed, index.MostFreed), Failpoint: o.failpoint}
}
