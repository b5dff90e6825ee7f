// Package server answers on the unix socket: decode, one call, encode.
//
// It owns what happens to one call. The socket is server/socket's, and who may use
// how much is server/admission's. It speaks HTTP/1.1 and JSON with net/http's own mux, by the table of
// routes in package api. It decides nothing about addresses: the book, the
// allocator and the releaser do, through the small interfaces in parts.go.
//
// It guarantees that a peer is judged before its body is read, that input
// which is not exactly what the verb takes is refused with the argument's
// name before anything is asked of the book, that every call has a deadline,
// and that no client, slow, idle or flooding, keeps another one from its answer. A panic in a call ends that call alone.
//
// It never opens a TCP port, and no verb frees by address.
package server
