// Command ipamd is the daemon: it turns a configuration into the rooms, opens
// them in order, runs their loops and closes them in reverse. One runs per
// runner, and the book and the bridge each refuse a second one.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// The first signal asks to stop; from then on a second one ends the
	// process at once, as signals do.
	context.AfterFunc(ctx, stop)
	os.Exit(newCommand(os.Stdout, os.Stderr).run(ctx, os.Args[1:]))
}
