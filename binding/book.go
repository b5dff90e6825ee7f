package binding

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/ipamd/ipamd/allocator"
	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/netdb"
)

// Kernel says what the names of links and namespaces are now; *bridge.Group is one.
type Kernel interface {
	// Settle reads what the kernel has reported up to now, for the addresses at least.
	Settle(ctx context.Context, about ...netip.Addr) error
	// CheckNetns is an error for a path that can name no network namespace.
	CheckNetns(ctx context.Context, path string) error
	// NetnsID returns the id by which sightings show the namespace at a path.
	NetnsID(ctx context.Context, path string) (int, error)
	// PlugOf resolves the names of a link and a namespace; 0 of one that does not exist.
	PlugOf(ctx context.Context, hostInterface, netns string) (index int, inode uint64, err error)
	// IsPort reports whether a link is a port of a bridge that is looked after: the one with the
	// index or, where that is 0, with the name.
	IsPort(ctx context.Context, hostInterface string, index int) (bool, error)
	// PortsInto says of each namespace which ports lead into it.
	PortsInto(ctx context.Context, of ...census.RecordedNetns) []census.Into
	// PortNames and PortMACs read memory: the names of the ports, and their MACs by their names.
	PortNames() map[string]bool
	PortMACs() map[string]string
	// Elsewhere returns the bridge that is not looked after, of which a link is a port; "": none.
	Elsewhere(ctx context.Context, hostInterface string) (bridge string, err error)
	// Forget deletes what the kernel remembers of addresses: neighbours and tracked connections.
	Forget(ctx context.Context, of ...netip.Prefix) error
	// Beside says in a sentence for each address where it is, in a namespace that no witness reads.
	Beside(ctx context.Context, sought census.Sought) (map[netip.Addr]string, error)
}

// Watchdog keeps a lease that was given to its owner until the owner has bound it, or its time to
// bind is over; *watchdog.Watchdog is one.
type Watchdog interface {
	// Bound ends that wait. before is the lease as it was when the call that bound it began.
	Bound(before, l *ipam.Lease, began time.Time)
	// Ended ends that wait: the owner has given the lease up.
	Ended(lease string)
}

// Reclaimer gives a lease from before a rebuild back to its owner; *allocator.Allocator is one.
type Reclaimer interface {
	Reclaim(ctx context.Context, who ipam.Who, id string, where ipam.Binding) (*ipam.Lease, error)
}

// Rules are the rules of nftables, which follow the book; *enforce.Keeper keeps them.
type Rules interface {
	// Ensure returns when the kernel has the rules of a lease, as the book has the lease now.
	Ensure(ctx context.Context, id string) error
}

// A Book is the lease book as callers on the socket change it. All fields but Runtime and Rules
// are needed. It is safe for concurrent use.
type Book struct {
	*netdb.Book
	Runtime   bool // a container runtime is configured
	Kernel    Kernel
	Board     *census.Board
	Watchdog  Watchdog
	Reclaimer Reclaimer
	Rules     Rules // nil: none are kept
	Log       *slog.Logger
}

// Bind is [netdb.Book.Bind] with checkBinding before it, for the owner of a lease. It gives a lease from
// before a rebuild back first, and returns when the kernel has the rules of the lease.
func (b *Book) Bind(ctx context.Context, who ipam.Who, id string, ifRev int64, where ipam.Binding) (*ipam.Lease, error) {
	if err := b.checkBinding(ctx, where); err != nil {
		return nil, err
	}
	began := time.Now()
	before, err := b.Book.Lease(id) // an error is Bind's to return
	if err == nil && before.Former() && (ifRev == 0 || ifRev == before.Rev) {
		by := who
		by.Reason = "reclaimed"
		if _, err := b.Reclaimer.Reclaim(ctx, by, id, where); err != nil {
			return nil, err
		}
		ifRev = 0
	}
	l, err := b.Book.Bind(ctx, who, id, ifRev, b.resolvedFor(ctx, where, before))
	if err == nil {
		b.Watchdog.Bound(before, l, began)
		err = awaitRules(ctx, b.Rules, l)
	}
	if err != nil {
		return nil, err
	}
	return l, nil
}

// BindEach is [netdb.Book.BindEach] with the checks of Bind. It returns when the kernel has the rules of
// all leases. With leases and an error the leases are bound, and the rules of some could not be made. It
// gives no lease from before a rebuild back, as Bind does.
func (b *Book) BindEach(ctx context.Context, who ipam.Who, ids []string, ifRev int64, where ipam.Binding) ([]*ipam.Lease, error) {
	if err := b.checkBinding(ctx, where); err != nil {
		return nil, err
	}
	began := time.Now()
	before := make(map[string]*ipam.Lease)
	for _, id := range ids {
		if l, err := b.Book.Lease(id); err == nil { // an error is BindEach's to return
			before[id] = l
		}
	}
	bound, err := b.Book.BindEach(ctx, who, ids, ifRev, b.resolvedFor(ctx, where, slices.Collect(maps.Values(before))...))
	if err != nil {
		return nil, err
	}
	for _, l := range bound {
		b.Watchdog.Bound(before[l.ID], l, began)
	}
	for _, l := range bound {
		if err := awaitRules(ctx, b.Rules, l); err != nil {
			return bound, err
		}
	}
	return bound, nil
}

// awaitRules waits for the rules of a lease that the book has bound. After an [allocator.ErrBridge] the
// caller makes the same bind again, which changes nothing in the book, and waits again. A lease that
// has ended meanwhile has no rules: its sandbox needs another one.
func awaitRules(ctx context.Context, r Rules, l *ipam.Lease) error {
	if r == nil {
		return nil
	}
	err := r.Ensure(ctx, l.ID)
	switch {
	case errors.Is(err, ipam.ErrGone), errors.Is(err, ipam.ErrNotFound), errors.Is(err, ipam.ErrState):
		return fmt.Errorf("the lease was bound, and has ended since: %w; allocate anew", err)
	case err != nil:
		return fmt.Errorf("the lease is bound, and %w; bind it again: %w", err, allocator.ErrBridge)
	}
	return nil
}

// Adopt is [netdb.Book.Adopt], for an operator, with checkBinding before it. Containers that the lease recorded
// before are its own: without them it could be adopted no more.
func (b *Book) Adopt(ctx context.Context, who ipam.Who, a ipam.Adoption) (*ipam.Lease, error) {
	where := a.Binding
	if was, err := b.Lease(a.ID); err == nil && slices.Equal(was.Containers, where.Containers) {
		where.Containers = nil
	}
	if err := b.checkBinding(ctx, where); err != nil {
		return nil, err
	}
	a.Binding = resolved(ctx, b.Kernel, a.Binding)
	l, err := b.Book.Adopt(ctx, who, a)
	if err == nil {
		err = awaitRules(ctx, b.Rules, l)
	}
	if err != nil {
		return nil, err
	}
	return l, nil
}

// checkBinding refuses containers and a namespace whose end could never be confirmed, and a port of
// a bridge that no pool names: no witness sees what is behind it.
func (b *Book) checkBinding(ctx context.Context, where ipam.Binding) error {
	if !b.Runtime && len(where.Containers) > 0 {
		return &ipam.FieldError{Field: "containers[0].namespace",
			Reason: `runtime.kind is "none": no witness could ever confirm that the container is gone; name its netns or host_interface`}
	}
	if where.HostInterface != "" && !b.Kernel.PortNames()[where.HostInterface] {
		if bridge, err := b.Kernel.Elsewhere(ctx, where.HostInterface); err == nil && bridge != "" {
			return &ipam.FieldError{Field: "host_interface", Reason: fmt.Sprintf("%s is a port of %s, which is not looked after", where.HostInterface, bridge)}
		}
	}
	return b.checkNetns(ctx, where)
}

func (b *Book) checkNetns(ctx context.Context, where ipam.Binding) error {
	if where.Netns == "" {
		return nil
	}
	return b.CheckNetns(ctx, where.Netns)
}

// CheckNetns refuses a path that can name no network namespace.
func (b *Book) CheckNetns(ctx context.Context, path string) error {
	if err := b.Kernel.CheckNetns(ctx, path); err != nil {
		return &ipam.FieldError{Field: "netns", Reason: err.Error()}
	}
	return nil
}

// Cancel also ends the watchdog's wait for a bind of the leases that it ends.
func (b *Book) Cancel(ctx context.Context, who ipam.Who, uid string, attempt int64) ([]*ipam.Lease, error) {
	ended, err := b.Book.Cancel(ctx, who, uid, attempt)
	for _, l := range ended {
		b.Watchdog.Ended(l.ID)
	}
	return ended, err
}

// ClearAt is [netdb.Book.ClearAt], which ends a quarantine. Before unseen reads the board, the pending
// news of the kernel is read; after it, the namespaces that no witness reads. A quarantine does not end while
// the address is in one of those, nor before the kernel has forgotten what its former owner left: no release was
// confirmed of that one.
func (b *Book) ClearAt(ctx context.Context, who ipam.Who, id string, rev int64, unseen func() error) (*ipam.Lease, error) {
	var about []netip.Addr
	if l, err := b.Book.Lease(id); err == nil && l != nil {
		about = append(about, l.Addr)
	}
	// News that could not be read makes its witness silent, and unseen refuses then. News that was
	// not read because ctx ended does not.
	if err := b.Kernel.Settle(ctx, about...); err != nil && ctx.Err() != nil {
		return nil, err
	}
	if l, err := b.Book.Lease(id); err == nil && (unseen == nil || unseen() == nil) {
		at, err := b.Kernel.Beside(ctx, census.Sought{Has: l.Covers, Sandbox: l.Sandbox != "", MAC: l.MAC})
		for _, says := range at {
			return nil, fmt.Errorf("clear %s: %w: %s", l.Text(), ipam.ErrState, says)
		}
		if err != nil {
			return nil, &allocator.EvidenceError{Silent: []census.Silence{{Witness: census.Netns, Reason: err.Error(), Since: time.Now()}}}
		}
		if err := forget(ctx, b.Kernel, l, rev, unseen); err != nil {
			return nil, err
		}
	}
	return b.Book.ClearAt(ctx, who, id, rev, unseen)
}
