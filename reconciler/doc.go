// Package reconciler compares book, wire and runtime, and takes the few safe
// steps that make them agree.
//
// It reads the book first and the census second, so that what it takes for
// missing cannot be younger than what it takes for there. What it decides is
// a pure function of the two; each action names the lease and the revision it
// was decided on, and is applied only if the lease is still at it. It never
// guesses towards free: while a witness is silent nothing moves that way.
package reconciler
