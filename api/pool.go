package api

import (
	"cmp"
	"encoding/json"
)

// PoolState is the state of a pool.
type PoolState string

const (
	PoolActive   PoolState = "active"
	PoolDraining PoolState = "draining" // it gives nothing; its leases stay until they end
	PoolRemoved  PoolState = "removed"  // in the answer to a removal only
)

// A Pool is a prefix that addresses are given from. Two pools of one name, one of each
// family, serve dual-stack requests; each has its own uid and generation.
type Pool struct {
	Name        string            `json:"name"`
	UID         string            `json:"uid"`        // of this incarnation: a pool made again has another
	Family      Family            `json:"family"`     // of the prefix: v4 or v6
	Generation  int64             `json:"generation"` // rises with each change of its description
	Prefix      string            `json:"prefix"`
	Gateway     string            `json:"gateway,omitempty"`
	Bridge      string            `json:"bridge"`
	Exclude     []string          `json:"exclude,omitempty"` // "10.8.64.200-10.8.64.250" or one address
	Routes      []Route           `json:"routes,omitempty"`
	DNS         []string          `json:"dns,omitempty"`
	Reservation []PoolReservation `json:"reservation,omitempty"`
	MTU         int               `json:"mtu,omitempty"`          // bytes; 0: the bridge's
	Cooldown    Duration          `json:"cooldown,omitempty"`     // its own; "": the daemon's
	CooldownMin Duration          `json:"cooldown_min,omitempty"` // its own; "": the daemon's
	Exhausted   string            `json:"exhausted,omitempty"`    // oldest or strict; "": the daemon's
	Labels      map[string]string `json:"labels,omitempty"`
	Warm        *PoolWarm         `json:"warm,omitempty"`  // nil: no slot is kept ready
	Slots       *PoolSlots        `json:"slots,omitempty"` // where there are any, or should be
	State       PoolState         `json:"state"`
	Size        uint64            `json:"size"`      // addresses that can be given at all
	Free        uint64            `json:"free"`      // addresses without a lease
	Kept        uint64            `json:"kept"`      // addresses without a lease that only their sandboxes get, not among free
	Available   uint64            `json:"available"` // addresses that can be given now: free, or cooled for long enough
	Outside     int               `json:"outside"`   // leases on addresses that it does not give any more
	ByState     map[string]int    `json:"by_state"`
	// NotReady is why it cannot give now, as far as its bridge goes; one sentence, "" when it
	// can. Repair are the commands that make the bridge ready, in this order; none where ipamd
	// makes it so, or a person has to look first.
	NotReady string   `json:"not_ready,omitempty"`
	Repair   []string `json:"repair,omitempty"`
}

// A PoolReservation is an address that a pool keeps for one sandbox, by its name.
type PoolReservation struct {
	Sandbox string `json:"sandbox"`
	Address string `json:"address"`
}

// PoolWarm says how many warm slots of a pool are kept ready.
type PoolWarm struct {
	Size     int64  `json:"size"`
	Max      int64  `json:"max,omitempty"`      // with those that are being made and taken down; 0: the size
	Strategy string `json:"strategy,omitempty"` // recreate or on_replenish; "": recreate
}

// PoolSlots counts the warm slots of a pool that no sandbox has.
type PoolSlots struct {
	Ready  int `json:"ready"`
	Making int `json:"making"` // reserved, and not there yet
	Ending int `json:"ending"` // being taken down
	Wanted int `json:"wanted"` // ready ones: the size, or fewer where sandboxes may need the addresses
	// Why there are not as many as the size, in a sentence; "" while there are, or are being made.
	Why string `json:"why,omitempty"`
}

// PoolList lists the pools.
type PoolList struct {
	Pools    []Pool `json:"pools"`
	Revision int64  `json:"revision"`
	Epoch    string `json:"epoch"`
}

// PoolRequest describes a pool as a whole, as it shall be: what is left out is as for a
// new pool. The family is the prefix's.
type PoolRequest struct {
	Prefix      string            `json:"prefix"`
	Gateway     string            `json:"gateway,omitempty"` // "": the prefix's first host; "none"
	Bridge      string            `json:"bridge,omitempty"`  // "": the daemon's
	Exclude     []string          `json:"exclude,omitempty"` // an address, a range or a prefix
	Routes      []Route           `json:"routes,omitempty"`
	DNS         []string          `json:"dns,omitempty"`
	Reservation []PoolReservation `json:"reservation,omitempty"`
	MTU         int64             `json:"mtu,omitempty"`
	Cooldown    Duration          `json:"cooldown,omitempty"`
	CooldownMin Duration          `json:"cooldown_min,omitempty"`
	Exhausted   string            `json:"exhausted,omitempty"`
	Labels      map[string]string `json:"labels,omitempty"`
	Warm        *PoolWarm         `json:"warm,omitempty"`
	// UID is the pool that the caller means; "" is the one of this name and family,
	// or a new one.
	UID string `json:"uid,omitempty"`
	// Generation is what the pool's shall be: one at or below the present is
	// stale_generation unless the pool is as described. 0 is the next one.
	Generation int64 `json:"generation,omitempty"`
	// Drain lets leases stand outside of what the pool gives from then on; without
	// it such a change is pool_not_empty.
	Drain   bool `json:"drain,omitempty"`
	Preview bool `json:"preview,omitempty"` // says what would happen, and does nothing
}

// NoGateway is how a description says that a pool has none.
const NoGateway = "none"

// Request describes the pool as it is, under the next generation, so that a change of another in
// between is not undone.
func (p *Pool) Request() (r PoolRequest, err error) {
	// What a description and a pool have in common has one name in both.
	text, err := json.Marshal(p)
	if err == nil {
		err = json.Unmarshal(text, &r)
	}
	r.Gateway = cmp.Or(r.Gateway, NoGateway)
	r.Generation++
	return r, err
}

// DrainRequest has a pool give nothing from now on, or give again.
type DrainRequest struct {
	UID        string `json:"uid"`
	Generation int64  `json:"generation,omitempty"` // as the caller saw it: if it is another by now, stale_generation. 0 does not ask
	Preview    bool   `json:"preview,omitempty"`
}

// A RemoveMode says what becomes of the leases of a pool that is removed.
type RemoveMode string

const (
	RemoveEmpty RemoveMode = "empty" // there may be none that holds an address: else pool_not_empty
	RemoveDrain RemoveMode = "drain" // the pool drains; asked again once its leases have ended, it goes
	RemoveForce RemoveMode = "force" // leases end, and their addresses are withheld, never free; wants a reason
)

// PoolReply answers a change of a pool, or its preview.
type PoolReply struct {
	Pool      Pool         `json:"pool"`      // as it is then; in a preview its counts are those of now
	Change    PoolChange   `json:"change"`    // what was done, or would be
	Preview   bool         `json:"preview"`   // nothing was done
	Unchanged int          `json:"unchanged"` // leases that stay as they are
	Effects   []PoolEffect `json:"effects"`   // on the others, in order of their addresses; at most [MostEffects]
	Total     int          `json:"total"`     // of the effects, also those that the list has no room for
	// GivesAgain says that the pool drained: one that is described anew does not.
	GivesAgain bool `json:"gives_again,omitempty"`
	// GatewayRests is what was the gateway: it cools before a sandbox gets it. "": none does.
	GatewayRests string `json:"gateway_rests,omitempty"`
	// TakenOver are addresses of removed pools, withheld until now, that become this one's.
	TakenOver int `json:"taken_over,omitempty"`
	// SlotsEnded are warm slots that are taken down for it: made by another spec, or more than it keeps.
	SlotsEnded int `json:"slots_ended,omitempty"`

	Revision int64  `json:"revision"`
	Epoch    string `json:"epoch"`
}

// MostEffects bounds the effects in a reply, and MostHolders the leases in the details of
// a refusal.
const (
	MostEffects = 10_000
	MostHolders = 16
)

// A PoolChange is what a verb makes of a pool.
type PoolChange string

const (
	PoolCreate  PoolChange = "create"
	PoolUpdate  PoolChange = "update"
	PoolDrain   PoolChange = "drain"
	PoolUndrain PoolChange = "undrain"
	PoolRemove  PoolChange = "remove"
	PoolSame    PoolChange = "none"
)

// A PoolEffect is what a change of a pool does to one of its leases.
type PoolEffect struct {
	LeaseID      string `json:"lease_id"`
	Address      string `json:"address"`
	PrefixLength int    `json:"prefix_length,omitempty"` // of the delegated prefix that begins at address; 0 of one address
	Sandbox      string `json:"sandbox,omitempty"`
	State        State  `json:"state"` // before
	Effect       Effect `json:"effect"`
	Note         string `json:"note,omitempty"` // why, for a person: "outside 10.8.64.0/25"
}

// An Effect is what becomes of a lease.
type Effect string

const (
	EffectOutside  Effect = "outside"  // it stays valid; its address is never given again
	EffectInside   Effect = "inside"   // it was outside, and its address can be given again
	EffectEnds     Effect = "ends"     // no sandbox holds the address: its row goes, and what is left of its cooldown is kept
	EffectWithheld Effect = "withheld" // quarantined, or ended by force: its address is given by no pool while it may be in use
)
