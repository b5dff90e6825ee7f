package api

import "time"

// Withheld is an address of a removed pool, which no pool gives while it cools or may be in
// use. It has no lease; the pool that comes to contain it has it as one.
type Withheld struct {
	Address string `json:"address"`
	// Of the delegated prefix that begins at the address; 0 of one address.
	PrefixLength int        `json:"prefix_length,omitempty"`
	State        State      `json:"state"` // cooling or quarantined
	Since        time.Time  `json:"since"` // when it entered its state
	Pool         string     `json:"pool"`  // that was removed
	PoolUID      string     `json:"pool_uid"`
	LeaseID      string     `json:"lease_id"`          // of the lease that it was
	Sandbox      string     `json:"sandbox,omitempty"` // that had it last, of a quarantined one; no owner
	Hold         string     `json:"hold,omitempty"`    // why only an operator clears it
	Evidence     []Sighting `json:"evidence,omitempty"`
}

// WithheldList lists what is withheld, in the order of the addresses.
type WithheldList struct {
	Withheld []Withheld `json:"withheld"`
	Revision int64      `json:"revision"`
	Epoch    string     `json:"epoch"`
}
