package ipam

// SeenOnWire is the reason of a quarantine that a conflict made: a witness saw
// a stranger on the address, or two workloads claimed it. An operator's and a
// rebuild's have reasons of their own.
const SeenOnWire = "seen_on_wire"

// Reasons of the two changes that frame a conflict on an address that is held.
// Both are moves of its state to itself.
const (
	ConflictSeen = "conflict_seen"
	ConflictOver = "conflict_over"
)

// Rebuilt is the reason of a quarantine in which a rebuild keeps a lease that was
// open in the old book: [Lease.Former] says whose it was.
const Rebuilt = "rebuilt"

// Rested is the reason of a change that ends a row which has cooled; the recorded word is of 0.1.0.
const Rested = "rested"

// RuntimePaused is the reason of a pause that a pass records, as it sees the tasks paused.
const RuntimePaused = "runtime_paused"

// Reasons of the changes of a pool.
const (
	PoolCreated  = "pool_created"
	PoolChanged  = "pool_changed"
	PoolDrains   = "pool_draining"
	PoolRemoved  = "pool_removed"  // also of each row that goes with it
	TakenOver    = "taken_over"    // of an address of a removed pool, by the one that contains it
	GatewayMoved = "gateway_moved" // of the address that was a pool's gateway
)

// PoolConfigured is the reason of a change that only notes what the configuration says.
const PoolConfigured = "pool_configured"

// Forced is the reason of the quarantine that ends a release whose removal can never be confirmed.
const Forced = "forced"

// Reasons of changes of slots.
const (
	SlotReserved = "slot_reserved"
	SlotReady    = "slot_ready"
	SlotClaimed  = "slot_claimed"
	SlotBroken   = "slot_broken"
	SlotUnused   = "slot_unused" // its address is free at once: no sandbox ever had it
)
