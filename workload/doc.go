// Package workload says what belongs to a lease: which containers, which
// sightings and which of the recorded plumbing. Whatever is not the lease's own
// is another lease's, a stranger's or a successor's, or nothing says whose it is.
//
// It holds pure functions over values of the book and the census. Every room
// that ends, keeps, binds or disputes a lease asks here, so that no two of them
// answer differently.
package workload
