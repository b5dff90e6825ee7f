// Package bridge makes the kernel match a description of one Linux bridge
// (rt0: link, addresses, forwarding), and reports what the kernel sees there.
//
// It owns the bridge and its gateway addresses when it is configured to manage
// them, and it owns four witnesses on a [census.Board]: netns (addresses in
// the network namespaces behind the ports, read without entering them), host
// (the host's own addresses), neighbour (entries that prove life) and probe
// (answers to a question on the wire).
//
// It guarantees that what it cannot read is silent and never "not seen": a missing
// bridge, an interrupted dump, a lost event or a closed socket leave the
// earlier sightings standing and say why. It never removes a link, nor an
// address but a gateway that it put on the bridge itself, never changes anything
// unless it manages the bridge or is asked to by [Bridge.Forget], [Bridge.SetGroups],
// [Bridge.LearnNoGroups] or [Bridge.Unlearn], and never sends a
// frame that claims an address: neither one that it asks about nor one that another
// is to get.
//
// Kernel news carries no payload here. An event only says which part to read
// again, so a lost or doubled event costs nothing; see [Bridge.Settle].
//
// # Parts
//
// [Bridge] takes the lock and asks its parts: the device (what is made), and a type for
// each witness: namespaces, hostAddresses, neighbours, answers. A part is a plain state
// machine with what it saw, what it has to read again, and its report on the board. It
// takes no lock, knows no Bridge, and sees the others through a wire, which it does not
// change, and through the few functions that it was made with.
//
// # Waiting
//
// Run waits for all sockets in one poll(2), and for an eventfd by which others wake it; it does not
// use Go's poller. The caller that holds mu drains the sockets, so Run waits until something is left to
// read. The poller wakes one goroutine for each socket on each arrival,
// also for what [Bridge.Settle] has read by then. This takes one thread of the process.
//
// # Locks
//
// In the order in which they are taken; each may be taken without those before it.
//
//	running            Run, for as long as it runs; Close waits for it
//	refreshing         Refresh, as a whole: two whole readings are no better than one
//	crowding           readCrowd, as a whole: one list of a crowded namespace at a time
//	searching          searchStacked, as a whole: a search goes by what the one before found
//	rtnl.Kept          one for each kind of question that is asked without mu; held while
//	                   the kernel answers. A socket of its own is dialled with mu held
//	mu                 all parts, and the sockets that are open; for some milliseconds at
//	                   most, in the order of the callers, each of which waits until its
//	                   context ends. Whatever takes longer is listed without it, by Run
//	probe.Prober, recentlySeen, alarm, nspath.Paths, share.Run
//	                   their own few fields; nothing is taken inside
//
// Ready, MTU, Status, Gaps, PortNames, PortMACs, Changed, SeenWithin and MissedSince do not take
// mu: they read what was published last.
package bridge
