// Package wake has paused sandboxes woken: one flight a lease, however many ask for it.
//
// It owns the order of a wake. The book remembers each flight, so that it survives a
// restart; a [Resumer] resumes the sandbox, and a lease that is bound again ends its flight,
// whatever resumed it. Bound after a wake means that the network can pass, not that the
// application is ready.
//
// It never frees an address, and asks neither the kernel nor a runtime by itself.
package wake
