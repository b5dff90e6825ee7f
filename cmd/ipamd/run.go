package main

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/coreos/go-systemd/v22/activation"
	"github.com/ipamd/ipamd/config"
	"github.com/ipamd/ipamd/config/reload"
	"github.com/ipamd/ipamd/internal/devnet"
	"github.com/ipamd/ipamd/internal/logging"
	"github.com/spf13/cobra"
)

func (c *command) runCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Run the daemon (the default verb)",
		Long: `Runs the daemon in the foreground until SIGINT or SIGTERM; a second one ends it
at once. The bridge, the book and the sandboxes stay as they are.

With --dev it is a daemon to try things with: it moves itself into a network
namespace of its own, where it makes its own bridge, so the host's network stays
untouched; book, socket and the name of the namespace are in ./run, and stay.

SIGHUP makes it read its configuration again: log.level and the pools are taken
over. Where anything else in it has changed, or a pool is refused, all of it
stays as it was, and "ipamctl doctor" names the reason.`,
		Example: `  ipamd run
  ipamd run --config ./ipamd.toml
  ipamd run --dev`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case c.dev && cmd.Flags().Changed("config"):
				return usageError{errors.New("--dev has a configuration of its own; leave --config out")}
			case c.dev && c.inside:
				return c.runDev(cmd.Context())
			case c.dev:
				return devnet.Enter(devNetns, []string{"run", "--dev", "--inside"}, "--again")
			}
			cfg, path, err := c.load(cmd.Context(), cmd)
			if err != nil {
				return err
			}
			if err := cfg.CheckMachine(cmd.Context(), path); err != nil {
				return err
			}
			least := new(slog.LevelVar)
			least.Set(logging.Level(cfg.Log.Level))
			queue, log := logging.NewQueue(logging.New(cfg.Log.Format, least, c.err, os.Getenv))
			defer queue.Close()
			slog.SetDefault(log) // what libraries say must not wait for a reader either
			if path == "" {
				path = "defaults"
			} else if who := config.OtherWriters(path); who != "" {
				log.Warn("others may change the configuration", "config", path, "who", who)
			}
			log.Info("starting", "version", thisBuild().Version, "config", path, "book", cfg.Book.Path, "bridge", cfg.Bridge.Name)
			asked := make(chan os.Signal, 1) // one that waits is as good as several
			signal.Notify(asked, syscall.SIGHUP)
			defer signal.Stop(asked)
			p := newProgram(cfg, log, thisBuild())
			p.given = activation.Files(true)
			p.reload = &reload.Source{Asked: asked, Level: least, Read: func(ctx context.Context) (config.Config, error) {
				cfg, _, err := c.load(ctx, cmd)
				return cfg, err
			}}
			return serve(cmd.Context(), p)
		},
	}
	c.runFlags(cmd)
	return cmd
}

func (c *command) runFlags(cmd *cobra.Command) {
	c.configFlag(cmd)
	f := cmd.Flags()
	f.BoolVar(&c.dev, "dev", false, "a development daemon in a network namespace of its own")
	f.BoolVar(&c.inside, "inside", false, "--dev has made the network namespace")
	f.BoolVar(&c.again, "again", false, "the network namespace is that of a daemon before")
	_ = errors.Join(f.MarkHidden("inside"), f.MarkHidden("again")) // fails only for a flag that does not exist
}

// serve is the daemon's life. Its errors end here, in the log.
func serve(ctx context.Context, p *program) error {
	if err := p.open(ctx); err != nil {
		p.log.Error("cannot start", "err", err)
		return exitCode(exitError)
	}
	if err := errors.Join(p.run(ctx), p.close()); err != nil {
		p.log.Error("stopped", "err", err)
		return exitCode(exitError)
	}
	p.log.Info("stopped")
	return nil
}
