package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/ipamd/ipamd/config"
	"github.com/ipamd/ipamd/internal/cli"
	"github.com/ipamd/ipamd/internal/term"
)

// What ipamd exits with.
const (
	exitOK    = 0
	exitError = 1 // it could not go on; check: the book has violations
	exitUsage = 2 // the command line or the configuration; check: it could not look
)

// A command is the whole command line as a value: one line, run once.
type command struct {
	out, err *os.File
	root     *cobra.Command

	config  string
	dev     bool
	inside  bool // the network namespace of --dev
	again   bool // and it is that of a daemon before
	started bool // a verb began; an error before that is in the command line
}

func newCommand(out, err *os.File) *command {
	c := &command{out: out, err: err}
	run, version := c.runCommand(), c.versionCommand()
	asked := false // by --version, which every program has
	c.root = &cobra.Command{
		Use:   "ipamd",
		Short: "Remember which sandbox holds which address on the bridge",
		Long: `ipamd hands out the addresses of a Linux bridge to the sandboxes on it, keeps
who holds which in a durable book, and never gives one that is still
in use. Without a verb it runs the daemon.`,
		Example: `  ipamd                               with /etc/ipamd/ipamd.toml, or defaults
  ipamd run --config ./ipamd.toml
  ipamd run --dev                     a daemon to try things with
  ipamd config                        every option, its value and its meaning
  ipamd check /var/lib/ipamd/book.db  look a stopped book over
  ipamd rebuild --preview             what a new book would be`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cli.KnownVerb,
		RunE: func(cmd *cobra.Command, args []string) error {
			if asked {
				return version.RunE(cmd, args)
			}
			return run.RunE(cmd, args)
		},
		PersistentPreRun: func(*cobra.Command, []string) { c.started = true },
	}
	// No template of usage is set here: with text/template each method of each type is linked, 7 MB.
	c.root.SetOut(out)
	c.root.SetErr(err)
	c.runFlags(c.root)
	c.root.Flags().BoolVar(&asked, "version", false, "print what ipamd version prints")
	c.root.AddCommand(run, c.configCommand(), c.checkCommand(), c.rebuildCommand(), c.restoreCommand(), c.importCommand(), c.flushCommand(), c.dockerCommand(), c.plumbCommand(), version)
	cli.Complete(c.root)
	return c
}

// run carries out one command line and returns the code to exit with.
func (c *command) run(ctx context.Context, args []string) int {
	c.root.SetArgs(args)
	cmd, err := c.root.ExecuteContextC(ctx)
	var (
		code  exitCode
		wrong config.Problems
		usage usageError
	)
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &code):
		return int(code)
	case !c.started || errors.As(err, &usage):
		c.report("%v\nsee %s --help", err, cmd.CommandPath())
		return exitUsage
	case errors.As(err, &wrong):
		c.report("the configuration is wrong:\n%v", wrong)
		return exitUsage
	}
	c.report("%v", err)
	return exitError
}

// report says something beside the answer. What is untrusted in it cannot steer a terminal.
func (c *command) report(format string, args ...any) {
	fmt.Fprintf(term.Lines{Writer: c.err}, "ipamd: "+format+"\n", args...)
}

// An exitCode ends the program after everything was reported.
type exitCode int

func (e exitCode) Error() string { return "exit code " + strconv.Itoa(int(e)) }

// A usageError is a command line that makes no sense.
type usageError struct{ error }

func (c *command) configFlag(cmd *cobra.Command) {
	cmd.Flags().StringVar(&c.config, "config", "",
		"`file`; else "+config.DefaultPath+" or the defaults")
	_ = cmd.MarkFlagFilename("config", "toml") // fails only for a flag that does not exist
}

// load reads the configuration that the flags name, and says where it is
// from; "" is the defaults.
func (c *command) load(ctx context.Context, cmd *cobra.Command) (config.Config, string, error) {
	path := c.config
	switch named := cmd.Flags().Changed("config"); {
	case named && path == "":
		return config.Config{}, "", usageError{errors.New("--config names no file")}
	case !named:
		path = config.Find()
	}
	cfg, err := config.Load(ctx, path)
	return cfg, path, err
}
