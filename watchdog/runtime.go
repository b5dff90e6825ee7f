package watchdog

import (
	"context"
	"net/netip"
	"syscall"
	"time"

	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/workload"
)

// A Container names one container in the runtime.
type Container = ipam.Container

// A Record is a container as the runtime's record shows it, running or not.
type Record = workload.Record

// A Tie is by what a container may belong to a lease.
type Tie = workload.Tie

// A Look is what the runtime answered about one container, asked by its id.
type Look struct {
	Found bool   // its record is there
	Task  string // created, running, paused, stopped, unknown; "" when it has none
}

// A Runtime is what the watchdog asks of the container runtime; *ctrd.Witness is one. Package orphans asks
// it, too: List, Signal, DeleteTask and Delete are for it alone. Every call has a deadline of its own beside ctx, and
// an error always means "not known".
type Runtime interface {
	// List reads the record of every container, in every namespace that is
	// followed. It asks no shim, so a frozen one does not hold it up.
	List(ctx context.Context) ([]Record, error)
	// Tied reads the record of every container that a tie holds, as of the call,
	// and may return others. Where List costs tens of milliseconds with a
	// thousand containers, this costs a few.
	Tied(ctx context.Context, ties []Tie) ([]Record, error)
	// Look asks for one container by its id. The task is asked for only when
	// the record is gone: a record that stands is answer enough, and its shim
	// may be the frozen one.
	Look(ctx context.Context, c Container) (Look, error)
	// Idle returns when the record of a container was made that has no task: the
	// zero time when it has one. It asks the shim, and is for a container that is
	// not known to have a task. No record is an error.
	Idle(ctx context.Context, c Container) (made time.Time, err error)
	// Changed returns a channel that is closed when something happened to any
	// container. It carries no payload: look again.
	Changed() <-chan struct{}

	// Signal sends a signal to every process of a container's task. A task that
	// is not there, or has ended, is no error.
	Signal(ctx context.Context, c Container, s syscall.Signal) error
	// DeleteTask deletes a task that has ended; one that is not there is no
	// error.
	DeleteTask(ctx context.Context, c Container) error
	// Delete deletes a container's record, and its snapshot if it has one of
	// its own; one that is not there is no error.
	Delete(ctx context.Context, c Container) error
}

// A Kernel is what the watchdog asks of the kernel; *bridge.Group is one, and *bridge.Bridge.
type Kernel interface {
	// Plugged says what of a lease's recorded plumbing is still a port of the
	// bridge: the host interface by its name, or by one that it had since it
	// was recorded (zero: not known), and every port that leads into
	// the network namespace at a path, where that is the one with the inode (0: not known). Nothing recorded ("") is
	// nothing plugged; a path that does not exist any more, or is another namespace's, leads nowhere. It is as of the call.
	Plugged(ctx context.Context, hostInterface string, recorded time.Time, netns string, inode uint64) ([]census.Plugged, error)
	// Remains looks where a sandbox was last known to be; has tells its addresses.
	Remains(ctx context.Context, at census.LastKnown, has func(netip.Addr) bool) (census.Remains, error)
	// Moved says in a sentence which namespace a link is in that was the host's; "" of one that is in none.
	Moved(ctx context.Context, index int, name string) (string, error)
	// Beside says in a sentence where each address is that is sought, in a namespace that no witness
	// reads.
	Beside(ctx context.Context, sought census.Sought) (map[netip.Addr]string, error)
	// PortNames returns the names of the bridges' ports, as their changes have
	// reported them.
	PortNames() map[string]bool
	// Forget deletes the bridges' neighbour entries and the connection tracking
	// entries of all addresses of prefixes. None there is no error; nor is a kernel without
	// connection tracking. [census.ErrorAbout] reads the error by their first addresses.
	Forget(ctx context.Context, of ...netip.Prefix) error
	// SeenWithin reports whether any interface was seen on the wire with an address
	// of a prefix within the time d before now, or may have been.
	SeenWithin(of netip.Prefix, d time.Duration) bool
}

// A Verdict is what the owner oracle says about a sandbox.
type Verdict int

const (
	Unknown Verdict = iota // could not ask, or not understood: keeps
	Valid
	Gone
)

// An Owned is one row of the oracle's list.
type Owned struct {
	Sandbox string
	Verdict Verdict // Gone: the list itself says so
}

// An Owner is the owner oracle: the sandbox runtime's own record of its sandboxes, if it
// has one to ask; *owner.Client is one. Its list may lag; a look-up may not.
type Owner interface {
	List(ctx context.Context) ([]Owned, error)
	Look(ctx context.Context, sandbox string) (Verdict, error)
}
