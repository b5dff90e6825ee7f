// Package bridge makes the kernel match a description of one Linux bridge
// (rt0: link, addresses, forwarding), and reports what the kernel sees there.
//
// It owns the bridge and its gateway addresses when it is told to manage
// them, and it owns four witnesses on a [census.Board]: netns (addresses in
// the network namespaces behind the ports, read without entering them), host
// (the host's own addresses), neighbour (entries that prove life) and probe
// (answers to a question on the wire).
//
// It guarantees that what it cannot read is silent and never "not seen": a missing
// bridge, an interrupted dump, a lost event or a closed socket leave the
// earlier sightings standing and say why. It never removes a link or an
// address, never changes anything unless it manages the bridge or is told to
// by [Bridge.Forget], and never sends a frame that claims an address: neither
// one that it asks about nor one that another is to get.
//
// Kernel news carries no payload here. An event only says which part to read
// again, so a lost or doubled event costs nothing; see [Bridge.Settle].
package bridge
