package api

import "time"

// A WarmPolicy says how much a request wants a warm slot.
type WarmPolicy string

const (
	WarmPrefer  WarmPolicy = "prefer"  // one that is ready, or what OnEmpty says
	WarmRequire WarmPolicy = "require" // one that is ready, or an error
	WarmNever   WarmPolicy = "never"   // an address alone, as without a WarmRequest
)

// OnEmpty is what a request does while no warm slot is ready.
type OnEmpty string

const (
	OnEmptyCold OnEmpty = "cold" // take an address without one; not with require
	OnEmptyWait OnEmpty = "wait" // wait, and then as with cold, or with require as with fail
	OnEmptyFail OnEmpty = "fail" // end in [NoWarmSlot]
)

// WarmRequest asks for a warm slot.
type WarmRequest struct {
	Policy  WarmPolicy `json:"policy,omitempty"`   // defaults to prefer
	OnEmpty OnEmpty    `json:"on_empty,omitempty"` // defaults to cold, with require to fail
	Wait    Duration   `json:"wait,omitempty"`     // with on_empty wait: at most 60s
	// The only spec that will do, as GivenSlot and SlotList have it; "": any that the pool allows.
	ClientSpecHash string `json:"client_spec_hash,omitempty"`
}

// A GivenSlot is the warm slot of a sandbox. The namespace has the interface already, with the
// address and routes of the lease; release takes it away again.
type GivenSlot struct {
	Slot     string `json:"slot"`
	Netns    string `json:"netns"`
	SpecHash string `json:"spec_hash"`
	Stale    bool   `json:"stale"` // the pool wants slots of another spec by now
}

// A SlotState says what is with a warm slot.
type SlotState string

const (
	SlotMaking  SlotState = "making" // its address is reserved, the rest is on its way
	SlotReady   SlotState = "ready"
	SlotEnding  SlotState = "ending"  // never given any more, and being taken down
	SlotClaimed SlotState = "claimed" // a sandbox has it
)

// A Slot is a warm slot of a pool.
type Slot struct {
	Slot          string    `json:"slot"`
	State         SlotState `json:"state"`
	Pool          string    `json:"pool"`
	Address       string    `json:"address"`
	LeaseID       string    `json:"lease_id"`
	Sandbox       string    `json:"sandbox,omitempty"` // of a claimed one
	Interface     string    `json:"interface"`
	Netns         string    `json:"netns"`
	HostInterface string    `json:"host_interface,omitempty"`
	SpecHash      string    `json:"spec_hash"`
	Stale         bool      `json:"stale"`            // the pool wants slots of another spec
	Broken        string    `json:"broken,omitempty"` // why it is never given
	Since         time.Time `json:"since"`            // in this state
}

// SlotList lists the warm slots, the oldest first.
type SlotList struct {
	Slots    []Slot `json:"slots"`
	Revision int64  `json:"revision"`
	Epoch    string `json:"epoch"`
}
