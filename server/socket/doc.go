// Package socket owns the unix socket that ipamd answers on: it is made, or taken over
// from systemd, made again when its file is removed, and asked who a peer is.
//
// It guarantees that no process can connect before mode and group are right, that a live
// socket of another process is never taken, and that a caller who waits on a socket of
// systemd's is answered by the next daemon. It reads and writes no request.
package socket
