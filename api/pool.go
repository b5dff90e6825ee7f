package api

// A Pool is a prefix that addresses are given from.
type Pool struct {
	Name        string            `json:"name"`
	UID         string            `json:"uid"`
	Generation  int64             `json:"generation"`
	Prefix      string            `json:"prefix"`
	Gateway     string            `json:"gateway,omitempty"`
	Bridge      string            `json:"bridge"`
	Exclude     []string          `json:"exclude,omitempty"` // "10.8.64.200-10.8.64.250" or one address
	Routes      []Route           `json:"routes,omitempty"`
	DNS         []string          `json:"dns,omitempty"`
	Reservation []PoolReservation `json:"reservation,omitempty"`
	State       string            `json:"state"`
	Size        uint64            `json:"size"`      // addresses that can be given at all
	Free        uint64            `json:"free"`      // addresses without a lease
	Kept        uint64            `json:"kept"`      // addresses without a lease that only their sandboxes get, not among free
	Available   uint64            `json:"available"` // addresses that can be given now: free, or rested for long enough
	ByState     map[string]int    `json:"by_state"`
}

// A PoolReservation is an address that a pool keeps for one sandbox, by its name.
type PoolReservation struct {
	Sandbox string `json:"sandbox"`
	Address string `json:"address"`
}

// PoolList lists the pools.
type PoolList struct {
	Pools    []Pool `json:"pools"`
	Revision int64  `json:"revision"`
	Epoch    string `json:"epoch"`
}
