package warm

import (
	"context"
	"net/netip"
	"slices"
	"time"

	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/ipam"
)

// Ports are those of the bridges, as the kernel has reported them.
type Ports interface {
	// PortIndexes are the indexes of the ports' links, by their names.
	PortIndexes() map[string]int
	// IsPort reports whether a link is a port of one of the bridges, as the kernel has it now; index may be 0.
	IsPort(ctx context.Context, name string, index int) (bool, error)
	// Elsewhere returns the bridge that a link is a port of where that is none of these; "": it is not.
	Elsewhere(ctx context.Context, name string) (bridge string, err error)
	// Settle takes in what the kernel has reported up to now.
	Settle(ctx context.Context, about ...netip.Addr) error
}

// noPort is why a slot is not given whose link is no port: its bridge was deleted and made anew, or
// the link was.
const noPort = "its port is on no bridge"

// A portWatch knows which slots that may be given have no port on a bridge. Only Run uses it.
type portWatch struct {
	book  Book
	ports Ports
	board Board

	lost   map[string]bool // leases of such slots, as of the last look
	looked time.Time       // when that was
}

// look reports whether there are any. It reads the ports at most once in lookEvery: nothing
// announces a link that leaves its bridge, as the book does not change with it.
func (w *portWatch) look(ctx context.Context) bool {
	if time.Since(w.looked) < lookEvery {
		return len(w.lost) > 0
	}
	ctx, cancel := context.WithTimeout(ctx, lookEvery)
	defer cancel()
	found := w.without(w.bound())
	if len(found) > 0 {
		// The kernel's report of a slot that was just made may not have been read yet.
		if w.ports.Settle(ctx) != nil {
			found = nil
		}
		found = w.without(slices.DeleteFunc(found, func(l *ipam.Lease) bool { return w.unknown(l.Addr) }))
	}
	w.looked, w.lost = time.Now(), make(map[string]bool, len(found))
	for _, l := range found {
		w.lost[l.ID] = true
	}
	return len(found) > 0
}

// bound returns the leases of slots that may be given, and whose port's link index was recorded in
// this boot of the machine.
func (w *portWatch) bound() (out []*ipam.Lease) {
	boot := ipam.Now().BootID
	for _, slot := range w.book.Slots() {
		if l, err := w.book.Lease(slot.LeaseID); err == nil && slot.Ready(l) && l.Plug.Index != 0 && l.Plug.OfBoot(boot) {
			out = append(out, l)
		}
	}
	return out
}

// without returns those whose recorded link is no port of a bridge. A port with its index and another name is
// another link, or would be refused to a claim.
func (w *portWatch) without(all []*ipam.Lease) (out []*ipam.Lease) {
	if len(all) == 0 {
		return nil
	}
	is := w.ports.PortIndexes()
	return slices.DeleteFunc(all, func(l *ipam.Lease) bool { return is[l.HostInterface] == l.Plug.Index })
}

// unknown reports that the ports of an address's bridge could not be read: the bridge is missing,
// or the reading was cut short. Then nothing is known about the slot's port.
func (w *portWatch) unknown(addr netip.Addr) bool {
	return slices.ContainsFunc(w.board.About(addr).Silent, func(s census.Silence) bool { return s.Witness == census.Netns })
}
