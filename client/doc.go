// Package client is what a sandbox runtime imports to speak with ipamd. The
// zero Client works, and everything it needs is the standard library and
// package api.
//
// A refusal is found by class with [errors.Is] and one of the Err constants,
// and in full with [errors.As] and *[api.Error]:
//
//	l, err := c.Bind(ctx, id, where)
//	if errors.Is(err, client.ErrLeaseGone) {
//		// forget the id; the address may be another sandbox's by now
//	}
//
// Nothing is retried here. Every verb is idempotent, so a caller that lost a
// reply may ask the same again: an allocation of the same (pool, uid,
// interface, family) returns the same lease, and a release of a lease that is
// gone is a success. Whether waiting helps says [api.Error.Retryable]. How
// often and for how long to retry is for the caller to know, and a retry that
// nobody sees hides a pool that is running out.
//
// A context without a deadline waits for as long as the daemon takes, which
// bounds every call itself.
package client
