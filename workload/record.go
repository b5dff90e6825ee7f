package workload

import (
	"net/netip"
	"time"

	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/ipam"
)

// A Record is what the runtime's record of one container says. An empty field is
// a label that the container does not have.
type Record struct {
	ipam.Container
	LeaseID string     // the lease label
	Sandbox string     // the owner label
	UID     string     // the label of the sandbox's incarnation
	Addr    netip.Addr // one address that a label claims; invalid for none
	// Made is the latest time at which the container can have been made, or the
	// zero time where that is not known.
	Made time.Time
	Task bool // the board shows one, or cannot say; false of a record that was listed
}

// Seen is the record behind a sighting of the runtime witness.
func Seen(s census.Sighting) Record {
	return Record{Container: ipam.Container{Namespace: s.Namespace, ID: s.Container},
		LeaseID: s.LeaseID, Sandbox: s.Sandbox, UID: s.UID, Addr: s.Addr, Made: s.At, Task: s.Task != "" || s.Note != ""}
}
