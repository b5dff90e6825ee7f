// Package server answers on the unix socket: decode, one call, encode.
//
// It owns the listening socket, the connections on it, and what a peer may
// do. It speaks HTTP/1.1 and JSON with net/http's own mux, by the table of
// routes in package api. It decides nothing about addresses: the book, the
// allocator and the releaser do, through the small interfaces in parts.go.
//
// It guarantees that a peer is judged before its body is read, that input
// which is not exactly what the verb takes is refused with the argument's
// name before anything is asked of the book, that every call has a deadline,
// and that neither a slow, nor an idle, nor a rude client costs another one
// its answer. A panic in a call ends that call alone.
//
// It never opens a TCP port, and no verb frees by address.
package server
