package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"

	"github.com/ipamd/ipamd/config"
	"github.com/ipamd/ipamd/internal/logging"
	"github.com/ipamd/ipamd/internal/term"
	"github.com/ipamd/ipamd/rebuild"
	"github.com/ipamd/ipamd/reconciler"
	"github.com/spf13/cobra"
)

func (c *command) rebuildCommand() *cobra.Command {
	var preview, force bool
	cmd := &cobra.Command{
		Use:   "rebuild",
		Short: "Make a new book where the old one is broken",
		Long: `Makes a new lease book, with a new epoch, from what the kernel and the container
runtime show, and moves the broken one away: book.db becomes
book.db.broken-<time>, with its log. Nothing is deleted, and no question is
asked.

A live workload gets its lease back, under the id that its label or what can be
read of the old book names. Addresses that the old book withheld stay out of
use: what cooled cools anew, what was held or being released is quarantined
until it has not been seen for long enough, and the address of a paused sandbox
is quarantined until an operator clears it; one that is known to hibernate stays
paused. Pools, cancelled attempts and wake policies come along; the history
stays in the old file. What could not be explained is reported.

It refuses, and changes nothing, while a daemon has the book or the bridge,
while a witness cannot answer, when the book is whole or there is none, and
when it is another runner's. One that was cut short is finished by running it
again; until then the daemon does not start. Where bridge.manage is true it
makes or repairs the bridge, as the daemon does.

Exit codes: 0 rebuilt, whatever was found; 1 refused, or it could not go on;
2 the command line or the configuration is wrong.`,
		Example: `  ipamd rebuild --preview               what it would do; changes nothing
  ipamd rebuild && ipamd run
  ipamd rebuild -o json > rebuilt.json  for a program: see "unexplained"
  ipamd rebuild --force                 although the book is whole or unreadable`,
		Args: cobra.NoArgs,
	}
	f := cmd.Flags()
	f.BoolVar(&preview, "preview", false, "report what would be done, and change nothing")
	f.BoolVar(&force, "force", false, "also of a whole book, or one that cannot be read at all")
	c.makesBook(cmd, func(ctx context.Context, cfg config.Config, open rebuild.Opener, _ []string) (*rebuild.Report, error) {
		r := rebuild.Rebuild{Config: cfg, Open: open, Preview: preview, Force: force}
		report, err := r.Run(ctx)
		if err != nil {
			return nil, fmt.Errorf("rebuild %s: %w", cfg.Book.Path, err)
		}
		return report, nil
	})
	return cmd
}

// makesBook has cmd make a new book by run, and print the report.
func (c *command) makesBook(cmd *cobra.Command, run func(context.Context, config.Config, rebuild.Opener, []string) (*rebuild.Report, error)) {
	var output string
	c.configFlag(cmd)
	cmd.Flags().StringVarP(&output, "output", "o", "text", "text or json")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if output != "text" && output != "json" {
			return usageError{fmt.Errorf("-o is text or json, not %q", output)}
		}
		cfg, _, err := c.load(cmd.Context(), cmd)
		if err != nil {
			return err
		}
		cfg.Log.Level = "warn" // the report says the rest
		log := logging.New(cfg.Log.Format, logging.Level(cfg.Log.Level), c.err, os.Getenv)
		report, err := run(cmd.Context(), cfg, partsOf(log, ""), args)
		if err != nil {
			return err
		}
		if output == "json" {
			return report.Json(c.out)
		}
		return report.Text(term.Lines{Writer: c.out})
	}
}

// partsOf opens what a rebuild needs of a daemon; netns is the bridge's network
// namespace, "" for the process's own.
func partsOf(log *slog.Logger, netns string) rebuild.Opener {
	return func(ctx context.Context, cfg config.Config) (*rebuild.Parts, error) {
		p := newProgram(cfg, log, thisBuild())
		p.netns = netns
		if err := p.inOrder(ctx, p.openBook, p.openBridge, p.openRuntime, p.openWatchdog); err != nil {
			return nil, err
		}
		return &rebuild.Parts{
			Book: p.book, Board: p.board, Runtime: p.runtime != nil, Follow: p.follower.Follow, Refresh: p.refresh, PlugOf: p.bridge.PlugOf, Close: p.close,
			Pass: func(ctx context.Context, book reconciler.Book) (*reconciler.Report, error) {
				if err := p.reconcileBy(book); err != nil {
					return nil, err
				}
				return p.reconciler.Pass(ctx, reconciler.Mode{})
			},
		}, nil
	}
}
