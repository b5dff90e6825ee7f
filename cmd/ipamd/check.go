package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ipamd/ipamd/config"
	"github.com/ipamd/ipamd/internal/term"
	"github.com/ipamd/ipamd/netdb"
)

func (c *command) checkCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "check [BOOK]",
		Short: "Look a stopped book over",
		Long: `Walks every invariant of a lease book that no daemon has open, and prints what
is broken, a line each: the invariant's name and what breaks it. Nothing is
changed. Without BOOK it is the one that the configuration names.

Exit codes: 0 whole, 1 something is broken, 2 it could not be looked at.`,
		Example: `  ipamd check
  ipamd check /var/lib/ipamd/book.db
  ipamd check --config ./ipamd.toml`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				if cmd.Flags().Changed("config") {
					return usageError{errors.New("name either a book or a configuration")}
				}
				cfg := config.Default() // how a book is read does not depend on the rest
				cfg.Book.Path = args[0]
				return c.check(cmd.Context(), cfg)
			}
			cfg, _, err := c.load(cmd.Context(), cmd)
			if err != nil {
				return err
			}
			return c.check(cmd.Context(), cfg)
		},
	}
	c.configFlag(cmd)
	return cmd
}

func (c *command) check(ctx context.Context, cfg config.Config) error {
	path := cfg.Book.Path
	is, err := netdb.CheckFile(ctx, path, cfg.BookOptions())
	if is.Exposed != "" {
		c.report("who else may change the book: %s", is.Exposed)
	}
	if err != nil {
		c.report("%v", err)
		return exitCode(exitUsage)
	}
	out := term.Lines{Writer: c.out}
	for _, v := range is.Found {
		fmt.Fprintln(out, strings.ReplaceAll(v.String(), "\n", `\n`)) // a line is one finding
	}
	if n := len(is.Found); n > 0 {
		c.report("%s: %d violations; nothing was changed", path, n)
		return exitCode(exitError)
	}
	_, err = fmt.Fprintf(out, "%s: whole: %d addresses in use or cooling, revision %d, epoch %s\n",
		path, is.Rows, is.Rev, strings.ReplaceAll(is.Epoch, "\n", `\n`))
	return err
}
