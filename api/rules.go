package api

import "time"

// MostRuleDifferences bounds how many differences a reply lists.
const MostRuleDifferences = 1000

// RulesReply is what nftables holds the bridges' ports to.
type RulesReply struct {
	Mode     string `json:"mode"`               // off, observe or enforce
	Unleased string `json:"unleased,omitempty"` // of ports without a lease: allow or drop
	Table    string `json:"table,omitempty"`    // as nft names it: "bridge ipamd"
	// Held: the kernel has the rules that the book asks for, as far as is known. Why says
	// what is in the way, and Since when.
	Held     bool        `json:"held"`
	Why      string      `json:"why,omitempty"`
	Since    *time.Time  `json:"since,omitempty"`
	MadeFrom string      `json:"made_from,omitempty"` // the book's epoch and revision, as the table carries them
	Elements int         `json:"elements"`
	Foreign  uint64      `json:"foreign"` // how often another program changed the table
	Repairs  uint64      `json:"repairs"` // how often it was repaired
	Ports    []PortRules `json:"ports"`
	Kept     []Allowed   `json:"kept,omitempty"` // of leases that have no port, hibernated ones for example: no port may use them
	Gone     []Refused   `json:"gone,omitempty"` // before a port had its present leases or the daemon started, and of ports that are no more
	// Compared: the table was read while no bind changed it, and Differences is all by which it is not what the book
	// asks for, the first 1000.
	Compared    bool             `json:"compared"`
	Differences []RuleDifference `json:"differences,omitempty"`
	Truncated   bool             `json:"truncated,omitempty"` // there are more
	Revision    int64            `json:"revision"`
	Epoch       string           `json:"epoch"`
}

// PortRules is what one port of a bridge may send.
type PortRules struct {
	Port    string    `json:"port,omitempty"` // the link's name; "" of one that has gone
	Index   int       `json:"index"`          // the link's
	Bridge  string    `json:"bridge,omitempty"`
	Trusted bool      `json:"trusted,omitempty"` // it holds no lease, and enforce.trusted names it
	Allowed []Allowed `json:"allowed"`           // none: no lease is used there, so it is as unleased says
	Refused []Refused `json:"refused,omitempty"`
}

// An Allowed is one address that a port may use, and whose lease says so.
type Allowed struct {
	Address string `json:"address"` // of a delegated prefix with its length
	MAC     string `json:"mac,omitempty"`
	LeaseID string `json:"lease_id"`
	Sandbox string `json:"sandbox,omitempty"`
}

// A Refused is how many packets were dropped, or with observe only counted.
type Refused struct {
	Reason  string `json:"reason"` // mac, arp, ipv4, ipv6, nd, type or unleased
	Packets uint64 `json:"packets"`
	Bytes   uint64 `json:"bytes"`
}

// A RuleDifference is one thing by which the table is not what the book asks for.
type RuleDifference struct {
	Missing bool   `json:"missing"`           // it should be there; else it should not
	Element bool   `json:"element,omitempty"` // What is an element of a set, in nft's language; else it says in words what is wrong
	What    string `json:"what"`
	Port    string `json:"port,omitempty"`
	LeaseID string `json:"lease_id,omitempty"`
}
