package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/spf13/cobra"
)

// stopTime is how long running answers have when the server stops.
const stopTime = 5 * time.Second

// command is the command line.
func command() *cobra.Command {
	var socket, file string
	var lag time.Duration
	root := &cobra.Command{
		Use:   "owner --file FILE [flags]",
		Short: "Answer ipamd which sandboxes there are",
		Long: `Answer ipamd which sandboxes there are, on a unix socket:

  GET /sandboxes        every sandbox with its state; may be as old as --lag
  GET /sandboxes/{id}   one sandbox as it is now; "gone" when FILE has none

FILE has a line for each sandbox: its id, a blank, and "valid" or "gone". It is
read again for each answer, so a plain editor changes the answers. A file that
cannot be read is answered with an error, never with an empty list.`,
		Example: `  # job-17 lives and job-18 is dead
  printf 'job-17 valid\njob-18 gone\n' > sandboxes
  owner --file sandboxes --socket /run/owner.sock

  # a list that lags by up to a minute; answers about one sandbox never do
  owner --file sandboxes --socket /run/owner.sock --lag 1m

  # ask it; then let ipamd ask: [owner] socket = '/run/owner.sock'
  curl -s --unix-socket /run/owner.sock http://owner/sandboxes
  curl -s --unix-socket /run/owner.sock http://owner/sandboxes/job-17`,
		Args:          cobra.NoArgs,
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if lag < 0 {
				return fmt.Errorf("--lag: %v is below 0", lag)
			}
			log := slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil))
			h := &handler{file: file, lag: lag, now: time.Now}
			return serve(cmd.Context(), socket, logged(log, h.routes()))
		},
	}
	f := root.Flags()
	f.StringVar(&file, "file", "", "`path` of the list of sandboxes")
	f.StringVar(&socket, "socket", "/run/owner.sock", "`path` of the socket to answer on; an old one is replaced")
	f.DurationVar(&lag, "lag", 0, "how old the list may get before it is read again")
	if err := root.MarkFlagRequired("file"); err != nil {
		panic(err) // the flag is defined above
	}
	return root
}

// serve answers until ctx ends.
func serve(ctx context.Context, socket string, h http.Handler) error {
	if err := os.Remove(socket); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("replace the socket: %w", err)
	}
	l, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	s := &http.Server{Handler: h, ReadHeaderTimeout: stopTime}
	stopped := make(chan error, 1)
	context.AfterFunc(ctx, func() {
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTime)
		defer cancel()
		stopped <- s.Shutdown(end)
	})
	if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return <-stopped
}

// logged writes a line for each answer, before the answer is on its way.
func logged(log *slog.Logger, h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.ServeHTTP(w, r)
		log.Info("answered", "route", r.Pattern, "path", r.URL.Path)
	})
}
