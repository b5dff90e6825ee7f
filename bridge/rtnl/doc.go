// Package rtnl speaks netlink: it asks the kernel about links, addresses,
// neighbours, namespaces and tracked connections, changes them, and subscribes to
// news of them. Each function is a message and what the kernel answers; nothing is
// remembered from one to the next but the sockets.
//
// It guarantees that a list which was interrupted, cut short or ended by an error
// never passes for whole, and that an answer without its object is an error: what
// could not be asked is not "not there".
package rtnl
