// Package api is what is said on ipamd's unix socket: the wire types, the
// error codes and the table of routes, in the standard library only, so that
// a client can import it without importing the daemon.
package api

// DefaultSocket is where ipamd listens.
const DefaultSocket = "/run/ipamd/ipamd.sock"
