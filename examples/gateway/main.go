// Command gateway is a small HTTP proxy in front of a runner's sandboxes. It is the
// example for authors of a gateway: gateway.go is the part to read.
//
// Package routes keeps its table from ipamd's stream of changes and from what other
// gateways push, in whatever order those come. So it sends nothing to a sandbox that has
// ended, and goes on with what it knows while ipamd restarts.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/ipamd/ipamd/client"
	"github.com/ipamd/ipamd/routes"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintf(os.Stderr, "gateway: %v\n", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("gateway", flag.ContinueOnError)
	listen := flags.String("listen", "127.0.0.1:8080", "where requests come, an `address`")
	pushes := flags.String("peers", "127.0.0.1:8081", "where other gateways push, an `address` that strangers do not reach")
	socket := flags.String("socket", "", "`path` of ipamd's socket, else IPAMD_SOCKET")
	port := flags.Uint("port", 80, "the `port` of each sandbox")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *port < 1 || *port > 65535 {
		return fmt.Errorf("-port: %d is none", *port)
	}
	table := &routes.Table{}
	ctx, cancel := context.WithCancelCause(ctx)
	var parts sync.WaitGroup
	defer parts.Wait()
	defer cancel(nil)
	parts.Go(func() {
		table.Follow(ctx, &client.Client{Socket: *socket}, func(err error) { slog.Warn("the stream of changes", "err", err) })
	})
	for addr, handler := range map[string]http.Handler{
		*listen: newGateway(table, uint16(*port), new(net.Dialer).DialContext),
		*pushes: peers(table),
	} {
		hs := &http.Server{Addr: addr, Handler: handler, ReadHeaderTimeout: 5 * time.Second}
		parts.Go(func() { cancel(hs.ListenAndServe()) })
		defer hs.Close()
	}
	<-ctx.Done()
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}
