//go:build !man

// Command ipamctl is a person's hand on ipamd: it asks the daemon over its
// unix socket, shows the answer, and ends with a code that says to a script
// what kind of answer it was. It holds no state, opens no book, and never
// retries a change by itself.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/term"

	"github.com/ipamd/ipamd/client"
	"github.com/ipamd/ipamd/internal/build"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	c := newCtl(terminal(), func(socket string) *client.Client {
		return &client.Client{Socket: socket}
	}, build.This())
	code := c.run(ctx, os.Args[1:])
	stop()
	os.Exit(code)
}

// terminal is the process's own standard streams.
func terminal() streams {
	return streams{
		out:      os.Stdout,
		err:      os.Stderr,
		terminal: term.IsTerminal(int(os.Stdout.Fd())),
		watched:  term.IsTerminal(int(os.Stderr.Fd())),
		columns: func() int {
			width, _, err := term.GetSize(int(os.Stdout.Fd()))
			if err != nil {
				return 0
			}
			return width
		},
		getenv: os.Getenv,
		now:    time.Now,
	}
}
