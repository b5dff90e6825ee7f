// Package bridge makes the kernel match a description of one Linux bridge
// (rt0: link, addresses, forwarding), and reports what the kernel sees there.
// A [Bridge] does so for one, a [Group] for all bridges that the pools name.
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
// [Bridge.LearnNoGroups] or [Bridge.Unlearn]. No frame that it sends claims an
// address of another: an ARP probe names none as its sender's, a neighbour solicitation the
// link-local address of the bridge's MAC, and no address is announced.
//
// Kernel news carries no payload here. An event only says which part to read
// again, so a lost or doubled event costs nothing; see [Bridge.Settle].
//
// # Parts
//
// [Bridge] takes the lock and asks its parts: the device (what is made), and a type for
// each witness: namespaces, hostAddresses, neighbours, answers. A part is a plain state
// machine: what it saw, what it has to read again, and its report on the board. It
// takes no lock and knows no Bridge. Of the other parts it sees what the type wire has, which
// it only reads, and what the few functions return that it is made with.
//
// # Waiting
//
// Run waits in one poll(2) for all sockets, and for an eventfd by which other callers wake it. This
// takes one thread of the process. It does not use Go's poller, which wakes a goroutine for each
// socket on each arrival, also where a caller of [Bridge.Settle] has read by then what arrived.
//
// # Locks
//
// In the order in which they are taken; each may be taken without those before it.
//
//	Group.setting      SetAll, Staying and Close of a Group
//	Group.loops        which loops of a Group run; for some instructions
//	running            Run, for as long as it runs; Close waits for it
//	refreshing         Refresh, from its start to its end: two at once find no more than one
//	crowding           readCrowd, from its start to its end: one list of a crowded namespace
//	                   (see inside.crowded) at a time
//	searching          searchStacked, from its start to its end: a search starts from what the
//	                   one before found
//	rtnl.Cached        one for each kind of question that is asked without mu; held while
//	                   the kernel answers. Where it has no socket yet, it takes mu to open one
//	mu                 all parts, and the sockets that are open; for some milliseconds at
//	                   most, in the order of the callers, each of which waits until its
//	                   context ends. Run and Refresh read what takes longer without it
//	probe.Prober, recentlySeen, wakeup, nspath.Paths, share.Run
//	                   their own few fields; no other lock is taken while one of them is held
//
// Ready, MTU, Status, Gaps, Own, PortNames, PortMACs, PortLinks, Changed, SeenWithin and MissedSince
// do not take mu: they read what was published last.
package bridge
