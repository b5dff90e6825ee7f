// Package census says who was seen where, by which witness, and which
// witnesses could not answer.
//
// It also has the values by which bridge answers rooms that may not import it ([Port], [Bridge],
// [LastKnown], [Remains], [Sought]).
//
// It owns no socket and asks nothing: the rooms that can see (bridge for the
// kernel, watchdog/ctrd for the runtime) post what they see on a [Board], and
// the rooms that decide read an [Answer] about one address or a whole
// [Census].
//
// It guarantees one thing: "could not ask" never reads as "not there". A
// witness that has not reported yet, or that failed, is silent; its earlier
// sightings stand until it reports again.
package census

import (
	"cmp"
	"errors"
	"net/netip"
	"slices"
	"time"
)

// A Witness is one independent way of seeing that an address is in use.
type Witness string

const (
	// Runtime reads containers' labels, whatever their task state: a stopped
	// container still owns its address.
	Runtime Witness = "runtime"
	// Netns reads the addresses inside the network namespaces behind the
	// ports of the bridge.
	Netns Witness = "netns"
	// Host reads the addresses of the host itself on the bridge.
	Host Witness = "host"
	// Neighbour reads the bridge's neighbour table, but only entries that
	// prove life: REACHABLE, or a MAC that the FDB has on a live port.
	Neighbour Witness = "neighbour"
	// Probe asks the wire for one address: an ARP probe (RFC 5227) or a
	// neighbour solicitation (RFC 4862, section 5.4). It never stands alone:
	// a paused microVM does not answer.
	Probe Witness = "probe"
	// Book stands in evidence that only a lease book has: what it had recorded
	// of a lease when no witness could be asked. No board has it.
	Book Witness = "book"
)

// Kernel reports whether w reads the kernel's own tables. These must answer
// before an address is handed out.
func (w Witness) Kernel() bool { return w == Netns || w == Host || w == Neighbour }

// A Sighting is one address seen by one witness. Its JSON form is what the
// book keeps as evidence and what the socket shows; empty fields are unknown,
// not absent.
//
// A container that claims no address is a sighting of [Runtime] without one
// (Addr is the zero value): it is there, which a lease that records it, or
// that its labels name, has to know. It is in [Census.Seen] under the zero
// address.
type Sighting struct {
	Addr    netip.Addr `json:"address"`
	Witness Witness    `json:"witness"`
	// At is when this witness first saw it this way; of a container, when its
	// record began to claim this (see watchdog/ctrd), however often it is read
	// and whatever its task does.
	At time.Time `json:"at"`

	Bridge string  `json:"bridge,omitempty"`
	Port   string  `json:"port,omitempty"` // host interface: a port of the bridge, or the bridge itself
	Netns  NetnsID `json:"netns,omitzero"` // "nsid:7", with the name where one is known: "nsid:7 (blue)"
	MAC    string  `json:"mac,omitempty"`  // lower case, colons; of an answer to [Probe], its frame's source

	// Index is that of the link Port, and Inode that of the namespace Netns where it has a name
	// under /run/netns. Within one boot no later link or namespace has them. 0: not known.
	Index int    `json:"-"`
	Inode uint64 `json:"-"`

	// Leads are all ports that lead into Netns, where there are several: Port is
	// then the one whose far end has the address, or one of them. See [Sighting.Behind].
	Leads *Ports `json:"-"`

	// Says is, of an answer to [Probe], the MAC inside the message, where that is not
	// MAC and is not known to be behind another port: a bond or a proxy may
	// answer so for its own address. Note names them for a person.
	Says string `json:"-"`

	Namespace string `json:"namespace,omitempty"` // containerd namespace
	Container string `json:"container,omitempty"` // container id
	Sandbox   string `json:"sandbox,omitempty"`   // the label that names the sandbox
	UID       string `json:"uid,omitempty"`       // the label of the sandbox's incarnation
	LeaseID   string `json:"lease_id,omitempty"`  // the lease label
	Task      string `json:"task,omitempty"`      // created, running, paused, stopped; "" when unknown

	TaskAt time.Time `json:"-"` // when the board first learned of this task state
	// Resumed says that a report of this container alone, as an event makes one, showed the same task
	// running that was paused in the report before: it was resumed just before TaskAt. That a task
	// runs is else no news of that moment: it may have begun long before the board learned of it.
	Resumed bool `json:"-"`
	// StoodAt is when a report of this container alone last showed the same task paused; zero: none did.
	// One that runs was resumed since then, whichever report shows it: reports follow one
	// another. A whole report does not date it, for it may have been read long before it was posted.
	StoodAt time.Time `json:"-"`
	Began   time.Time `json:"-"` // when the first process of a task that lives was started; zero: that is not known
	PID     uint32    `json:"-"` // of a task that lives, in the pid namespace of its runtime; 0: none

	// Unread says which of a container's labels cannot be read, so that what it
	// claims is not known; on one of its sightings.
	Unread string `json:"-"`

	Note string `json:"note,omitempty"` // one sentence for a person
}

// Where says for a person where it was seen, to follow a sentence: " in container
// default/c1". It is empty when only the address is known.
func (s Sighting) Where() string {
	switch {
	case s.Container != "":
		return " in container " + s.Namespace + "/" + s.Container
	case s.Netns != NetnsID{}:
		return " in " + s.Netns.String() + " behind port " + s.Port
	case s.Port != "" && s.MAC != "":
		return " on " + s.Port + " (" + s.MAC + ")"
	case s.Port != "":
		return " on " + s.Port
	}
	return ""
}

// A Silence is a witness that could not answer, or not completely.
type Silence struct {
	Witness Witness   `json:"witness"`
	Bridge  string    `json:"bridge,omitempty"` // that it could not read; "" where there is but one, or it reads none
	Reason  string    `json:"reason"`
	Since   time.Time `json:"since"`
}

// An Answer is all that is known about one address at one moment.
type Answer struct {
	Addr     netip.Addr
	Seen     []Sighting
	Silent   []Silence
	Answered []Witness
}

// Unseen reports that every expected witness answered and none sees the
// address.
func (a Answer) Unseen() bool { return len(a.Seen) == 0 && len(a.Silent) == 0 }

// KernelSilent returns the first kernel witness that could not answer.
func (a Answer) KernelSilent() (Silence, bool) {
	for _, s := range a.Silent {
		if s.Witness.Kernel() {
			return s, true
		}
	}
	return Silence{}, false
}

// A Census is a whole reading of the board.
type Census struct {
	Taken  time.Time
	Seen   map[netip.Addr][]Sighting
	Silent []Silence
	place  func(netip.Addr) string // nil: each silence is about each address
}

// Unread returns the containers of which a label cannot be read, a sighting each,
// in the order of their names.
func (c Census) Unread() (out []Sighting) {
	for _, seen := range c.Seen {
		for _, s := range seen {
			if s.Unread != "" {
				out = append(out, s)
			}
		}
	}
	slices.SortFunc(out, func(a, b Sighting) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Container, b.Container))
	})
	return out
}

// Complete reports that every expected witness answered.
func (c Census) Complete() bool { return len(c.Silent) == 0 }

// CompleteAbout reports that every witness answered that has to answer about an address: one
// on another bridge need not.
func (c Census) CompleteAbout(addr netip.Addr) bool {
	return !slices.ContainsFunc(c.Silent, func(s Silence) bool {
		if s.Bridge == "" || c.place == nil {
			return true
		}
		on := c.place(addr)
		return on == "" || on == s.Bridge
	})
}

// ErrNoBridge is wrapped by the silence of a witness whose bridge is not there.
var ErrNoBridge = errors.New("the bridge is not there")
