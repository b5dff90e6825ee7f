// Package plumb makes, checks and takes away a sandbox's port: a veth pair with
// one end on a bridge and the other, with addresses and routes, in the sandbox's
// network namespace; or a tap on the bridge for a virtual machine.
//
// A port is made as its [Spec] describes it, or not at all. What a killed process
// left half made is finished by [Make] of the same spec, or taken back by [Remove].
// Nothing is written down for that: the bridge's end is born with a MAC that is
// made from the owner's name, so that each knows its own port from another's,
// and a port of another owner is never touched.
//
// The sandbox's end is born in its namespace and never moved there, which takes
// the kernel twenty times as long.
//
// The caller's thread is in the namespace of the bridge. Functions are safe for
// concurrent use; they need CAP_NET_ADMIN and CAP_SYS_ADMIN, and Announce
// CAP_NET_RAW.
package plumb
