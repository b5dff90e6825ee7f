// Package admission owns who may use how much of the daemon: it judges the peer of a
// connection, bounds connections, calls and answers of each peer, and shares what is
// costly.
//
// It guarantees that one peer, whatever it sends or leaves unread, neither keeps others
// from being served nor makes the daemon's memory grow with it. What it refuses is not
// begun. It reads no request and knows no verb.
package admission
