//go:build !man

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
	ctx, stop := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 2) // room for a second one that follows at once
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-signals
		stop()
		second := <-signals
		os.Exit(128 + int(second.(syscall.Signal)))
	}()
	os.Exit(newCommand(os.Stdout, os.Stderr).run(ctx, os.Args[1:]))
}
