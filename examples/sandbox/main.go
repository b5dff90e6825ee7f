// Command sandbox is a small sandbox runtime: containers under containerd, on
// the bridge that ipamd looks after, each with an address from ipamd. It is
// the example for authors of a runtime that uses ipamd; run.go and
// remove.go are the part to read.
//
// Three rules make it safe, whatever dies in between. Allocate the address
// first and write the lease's id to the container's labels, so that book and
// runtime can be compared. Release a lease by its id, and only after its
// container, task and network namespace are gone. When a step fails, undo
// the earlier ones in reverse, and stop where that fails too: an address is
// cheaper than two owners of it.
//
// Containers need no image: all share a read-only folder with a static
// busybox. What else a runtime does (images, resolv.conf, limits) is left
// out.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := command().ExecuteContext(ctx)
	stop()
	var inside exitError
	if errors.As(err, &inside) {
		os.Exit(int(inside))
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "sandbox: %v\n", err)
		if h := hint(err); h != "" {
			fmt.Fprintf(os.Stderr, "hint: %s\n", h)
		}
		os.Exit(1)
	}
}
