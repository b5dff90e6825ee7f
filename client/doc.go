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
// A call is tried once. Every verb is idempotent, so a caller that lost a reply
// may repeat it: an allocation of the same (pool, uid, interface, family) returns
// the same lease, and a release of a lease that is gone is a success. [Retry]
// repeats a call while that may help, for as long as its caller says: a retry
// without a bound hides a pool that is running out.
//
// A context without a deadline waits for as long as the daemon takes, which
// bounds every call itself.
package client
