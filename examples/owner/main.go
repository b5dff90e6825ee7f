// Command owner is a small owner oracle: it tells ipamd which sandboxes there
// are, over HTTP on a unix socket. It is the example for whoever teaches an own
// runtime to answer; handler.go is the part to read.
//
// One rule makes it safe: the answer about one sandbox never lags and never
// guesses. Whoever cannot tell answers with an error, for "gone" may be a
// sandbox's death. The list may be old: ipamd asks for each sandbox that it
// lacks before it believes it gone.
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
