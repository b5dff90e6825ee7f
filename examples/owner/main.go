// Command owner is a small owner oracle: it answers ipamd which sandboxes
// there are, over HTTP on a unix socket. It is the example for authors of a runtime
// that answers; handler.go is the part to read.
//
// One rule makes it safe: the answer about one sandbox never lags and never
// guesses. What it does not know it answers with an error, for "gone" may end a
// sandbox. The list may be old: ipamd asks about each sandbox that is
// not in it before it takes it for gone.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := command().ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "owner: %v\n", err)
		os.Exit(1)
	}
}
