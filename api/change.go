package api

import "time"

// A Change is one recorded move of an address, or the end of a sandbox uid's
// attempts; that one has no address and no lease.
type Change struct {
	Revision int64     `json:"revision"`
	At       time.Time `json:"at"`
	Address  string    `json:"address"`
	// Of the delegated prefix that begins at the address; 0 of one address.
	PrefixLength int        `json:"prefix_length,omitempty"`
	LeaseID      string     `json:"lease_id"`
	Pool         string     `json:"pool"`
	Sandbox      string     `json:"sandbox"`
	UID          string     `json:"uid"`
	Interface    string     `json:"interface"`
	Attempt      int64      `json:"attempt"`
	From         State      `json:"from"`
	To           State      `json:"to"`
	Actor        string     `json:"actor"`
	Peer         string     `json:"peer,omitempty"`
	Reason       string     `json:"reason"`
	Note         string     `json:"note,omitempty"` // an operator's words
	Evidence     []Sighting `json:"evidence,omitempty"`
	Described    *Described `json:"described,omitempty"` // of a pool's change: what it is from then on
}

// Described is what a change makes of a pool. Which leases are outside of it follows from
// all of the pool, and no change has it: list again.
type Described struct {
	UID        string    `json:"uid"`
	Generation int64     `json:"generation"`
	Prefix     string    `json:"prefix"`
	State      PoolState `json:"state"`
}

// ChangeList is part of the history, newest first.
type ChangeList struct {
	Changes  []Change `json:"changes"`
	Revision int64    `json:"revision"`
	Epoch    string   `json:"epoch"`
}
