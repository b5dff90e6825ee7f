package main

import (
	"context"
	"errors"
	"fmt"
	"os"
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
	if _, err := os.Stat(path); err != nil { // before a lock is made beside nothing
		return c.cannot(fmt.Errorf("check the book: %w", err))
	}
	opts := cfg.BookOptions()
	opts.ReadOnly = true
	book, err := netdb.Open(path, opts)
	if errors.Is(err, netdb.ErrDamaged) {
		return c.broken(path, []netdb.Violation{{Invariant: netdb.FileIsWhole, Detail: err.Error()}})
	}
	if err != nil {
		return c.cannot(fmt.Errorf("check the book: %w", err))
	}
	if who := book.Info().Exposed; who != "" {
		fmt.Fprintln(term.Lines{Writer: c.err}, "ipamd: who else may change the book:", who)
	}
	found, err := book.Check(ctx)
	leases, rev := book.Leases()
	if err := errors.Join(err, book.Close()); err != nil {
		return c.cannot(fmt.Errorf("check the book: %w", err))
	}
	if len(found) > 0 {
		return c.broken(path, found)
	}
	_, err = fmt.Fprintf(term.Lines{Writer: c.out}, "%s: whole: %d addresses in use or cooling, revision %d, epoch %s\n",
		path, len(leases), rev, strings.ReplaceAll(book.Epoch(), "\n", `\n`))
	return err
}

// broken prints what is broken, for a program to read too.
func (c *command) broken(path string, found []netdb.Violation) error {
	for _, v := range found {
		fmt.Fprintln(term.Lines{Writer: c.out}, strings.ReplaceAll(v.String(), "\n", `\n`)) // a line is one finding
	}
	fmt.Fprintf(term.Lines{Writer: c.err}, "ipamd: %s: %d violations; nothing was changed\n", path, len(found))
	return exitCode(exitError)
}

// cannot reports why the book could not be read.
func (c *command) cannot(err error) error {
	fmt.Fprintf(term.Lines{Writer: c.err}, "ipamd: %v\n", err)
	return exitCode(exitUsage)
}
