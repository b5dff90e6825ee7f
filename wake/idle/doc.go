// Package idle says when a sandbox last had traffic, and which have had none for long.
//
// It owns one table of nftables, of the bridge family, and reads it in one dump for each
// address family. The kernel keeps an element for each address that begins its life anew with
// each packet: what is left of it says when the last packet came, to the millisecond, however
// rarely it is read and while ipamd is down.
//
// What counts is IP to and from the address of a lease, or any of its delegated prefix, as it
// passes the bridge, but no ICMP and no IGMP. A prefix has one element, whatever of it is used.
// So no other place would do. A port's own counters have every broadcast of a neighbour, ARP,
// neighbour discovery and ipamd's own probes in them, and who was asked for cannot be known
// apart afterwards. The rules that enforce are off by default, and see what a port sends only.
// Those that watch sleepers are there for sleepers only, with a chain for each port; here two
// chains do for all. What is sent by, or to, an address of idle.ignore counts for nothing: a
// scrape is no life.
package idle
