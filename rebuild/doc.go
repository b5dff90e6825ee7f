// Package rebuild owns how a broken book is replaced: a new book is made beside it from
// what the kernel and the container runtime show and from what can be read of the old
// one, and the two change places.
//
// It guarantees that a live workload has its lease back under the id that is on record,
// that an address which the old book withheld is withheld, that half a census makes no
// book, and that a rebuild which is cut short is finished by the next one. It deletes
// no book, and it neither makes nor repairs a bridge itself: what it needs of a daemon
// is opened by [Rebuild.Open].
package rebuild
