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

// Kernel is what is asked about names of links and namespaces; *bridge.Bridge is one.
type Kernel interface {
	Settle(ctx context.Context, about ...netip.Addr) error
	CheckNetns(ctx context.Context, path string) error
	NetnsID(ctx context.Context, path string) (int, error)
	PlugOf(ctx context.Context, hostInterface, netns string) (index int, inode uint64, err error)
	IsPort(ctx context.Context, hostInterface string, index int) (bool, error)
	PortsInto(ctx context.Context, of ...census.Namespace) []census.Into
	PortNames() map[string]bool
	PortMACs() map[string]string
	Elsewhere(ctx context.Context, hostInterface string) (bridge string, err error)
	Beside(ctx context.Context, sought census.Sought) (map[netip.Addr]string, error)
}

// Watchdog waits for the binds of leases that were answered; *watchdog.Watchdog is one.
type Watchdog interface {
	Bound(before, l *ipam.Lease, began time.Time)
	Ended(lease string)
}

// Allocator gives former leases back after a rebuild; *allocator.Allocator is one.
type Allocator interface {
	Reclaim(ctx context.Context, who ipam.Who, id string, where ipam.Binding) (*ipam.Lease, error)
}

// Rules of the kernel follow the book; *enforce.Keeper keeps them.
type Rules interface {
	// Hold returns when the rules of a lease are as the book has it.
	Hold(ctx context.Context, id string) error
}

// A Book is the lease book as callers on the socket change it. All fields but Rules are needed.
// It is safe for concurrent use.
type Book struct {
	*netdb.Book
	Runtime   bool // there is one, which containers can be in
	Kernel    Kernel
	Board     *census.Board
	Watchdog  Watchdog
	Allocator Allocator
	Rules     Rules // nil: none are kept
	Log       *slog.Logger
}

// Bind refuses containers where no runtime could ever confirm that they are gone, and a
// namespace that the kernel does not know. See [netdb.Book.Bind].
func (b *Book) Bind(ctx context.Context, who ipam.Who, id string, ifRev int64, where ipam.Binding) (*ipam.Lease, error) {
	if err := b.checkBinding(ctx, where); err != nil {
		return nil, err
	}
	began := time.Now()
	before, err := b.Book.Lease(id) // an error is Bind's to return
	if err == nil && before.Former() && (ifRev == 0 || ifRev == before.Rev) {
		by := who
		by.Reason = "reclaimed"
		if _, err := b.Allocator.Reclaim(ctx, by, id, where); err != nil {
			return nil, err
		}
		ifRev = 0
	}
	l, err := b.Book.Bind(ctx, who, id, ifRev, b.pluggedBy(ctx, where, before))
	if err == nil {
		b.Watchdog.Bound(before, l, began)
		err = hold(ctx, b.Rules, l)
	}
	if err != nil {
		return nil, err
	}
	return l, nil
}

// BindEach is [netdb.Book.BindEach] with the checks of Bind; what it returns has its rules, but
// beside an error: then the leases are bound, and their rules could not be made. None of the leases
// is a former one, from before a rebuild.
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
	bound, err := b.Book.BindEach(ctx, who, ids, ifRev, b.pluggedBy(ctx, where, slices.Collect(maps.Values(before))...))
	if err != nil {
		return nil, err
	}
	for _, l := range bound {
		b.Watchdog.Bound(before[l.ID], l, began)
	}
	for _, l := range bound {
		if err := hold(ctx, b.Rules, l); err != nil {
			return bound, err
		}
	}
	return bound, nil
}

// hold waits for the rules of a lease that the book has bound. After an [allocator.ErrBridge] the
// same bind is asked for again: it changes nothing in the book, and waits again. A lease that was
// released meanwhile, and has ended, has no rules: its sandbox needs another.
func hold(ctx context.Context, r Rules, l *ipam.Lease) error {
	if r == nil {
		return nil
	}
	err := r.Hold(ctx, l.ID)
	switch {
	case errors.Is(err, ipam.ErrGone), errors.Is(err, ipam.ErrNotFound), errors.Is(err, ipam.ErrState):
		return fmt.Errorf("the lease was bound, and has ended since: %w; allocate anew", err)
	case err != nil:
		return fmt.Errorf("the lease is bound, and %w; bind it again: %w", err, allocator.ErrBridge)
	}
	return nil
}

// Adopt refuses on an operator's word what Bind does.
func (b *Book) Adopt(ctx context.Context, who ipam.Who, a ipam.Adoption) (*ipam.Lease, error) {
	if err := b.checkNetns(ctx, a.Binding); err != nil {
		return nil, err
	}
	a.Binding = plugged(ctx, b.Kernel, a.Binding)
	l, err := b.Book.Adopt(ctx, who, a)
	if err == nil {
		err = hold(ctx, b.Rules, l)
	}
	if err != nil {
		return nil, err
	}
	return l, nil
}

// checkBinding refuses containers and a namespace whose end could never be confirmed, and a port
// of a bridge that is not looked after: nothing behind it is seen.
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

// ClearAt takes in the kernel's news before unseen reads the board, and refuses while the address is
// in a namespace that no witness reads: that is asked after the board.
func (b *Book) ClearAt(ctx context.Context, who ipam.Who, id string, rev int64, unseen func() error) (*ipam.Lease, error) {
	var about []netip.Addr
	if l, err := b.Book.Lease(id); err == nil && l != nil {
		about = append(about, l.Addr)
	}
	// What could not be read silences its witness, which unseen asks; what a
	// deadline left unread does not.
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
	}
	return b.Book.ClearAt(ctx, who, id, rev, unseen)
}
