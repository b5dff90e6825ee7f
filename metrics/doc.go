// Package metrics owns what Prometheus reads of a daemon: counters of what happened,
// and gauges that are read from the daemon at each scrape.
//
// It guarantees that an event is counted once, where it became durable, and that a
// label whose values are known begins at 0. It never decides anything, keeps no state
// that the book has, and answers over TCP only on the address that it is given.
package metrics
