package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/client"
	"github.com/ipamd/ipamd/internal/build"
	"github.com/ipamd/ipamd/internal/cli"
	"github.com/ipamd/ipamd/internal/nearest"
	"github.com/ipamd/ipamd/internal/term"
)

// streams is everything of the process that a verb may touch.
type streams struct {
	out, err io.Writer
	terminal bool       // out is a terminal
	watched  bool       // err is a terminal
	columns  func() int // the width of out; 0 when it has none
	getenv   func(string) string
	now      func() time.Time
}

// A ctl is the whole program as a value: one command line, run once.
type ctl struct {
	streams
	dial  func(socket string) *client.Client
	build build.Info
	root  *cobra.Command

	socket  string
	format  choice
	quiet   bool
	noColor bool
	timeout time.Duration
	first   time.Duration // until the daemon's first sign of life; 0: all of timeout

	patience time.Duration // of a person who pressed tab

	silent error // an unanswered; what a verb makes of it says less

	about subject // what the verb is about, for hints

	started bool // a verb began; an error before that is in the command line
}

// A subject is what a verb is about, as far as it is known.
type subject struct {
	lease, address, pool string
	book                 bool   // as a whole
	verb                 string // as it is typed, ipamctl before it
}

func newCtl(s streams, dial func(socket string) *client.Client, b build.Info) *ctl {
	c := &ctl{streams: s, dial: dial, build: b, format: newChoice("table", "wide", "json", "yaml"), patience: patience, first: firstAnswer}
	c.root = &cobra.Command{
		Use:   "ipamctl",
		Short: "See and steer the addresses that ipamd hands out",
		Long: `ipamctl shows which sandbox holds which address on this runner, why, and since
when, and carries out the few changes that are a person's to make. A lease is
named by its id; no verb frees an address by naming the address.`,
		Example: `  ipamctl status
  ipamctl whois 10.8.64.7
  ipamctl map
  ipamctl leases --state bound -o json`,
		SilenceErrors:     true,
		SilenceUsage:      true,
		Args:              cli.KnownVerb,
		RunE:              func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		PersistentPreRunE: c.begin,
	}
	c.root.Version = buildName(b)
	c.root.SetVersionTemplate("ipamctl {{.Version}}\n")
	c.root.SetUsageTemplate(strings.ReplaceAll(c.root.UsageTemplate(), ".FlagUsages", ".FlagUsagesWrapped 80"))
	c.root.SetOut(s.out)
	c.root.SetErr(s.err)

	socket := s.getenv("IPAMD_SOCKET")
	if socket == "" {
		socket = api.DefaultSocket
	}
	f := c.root.PersistentFlags()
	f.StringVar(&c.socket, "socket", socket, "`path` of ipamd's socket, else IPAMD_SOCKET")
	f.VarP(&c.format, "output", "o", "`format` of the answer: "+c.format.want())
	f.BoolVarP(&c.quiet, "quiet", "q", false, "only ids, addresses or names, one a line")
	f.DurationVar(&c.timeout, "timeout", 10*time.Second, "give up after this `duration`")
	f.BoolVar(&c.noColor, "no-color", false, "no colour; so does NO_COLOR, and a pipe")
	c.complete(c.root, "output", c.format.complete)

	c.root.SetFlagErrorFunc(knownFlag)
	for _, group := range []struct {
		title string
		verbs []*cobra.Command
	}{
		{"See what is:", []*cobra.Command{statusCommand(c), topCommand(c), leasesCommand(c), showCommand(c), whoisCommand(c), mapCommand(c),
			historyCommand(c), watchCommand(c), routesCommand(c), rulesCommand(c), warmCommand(c)}},
		{"Find what is wrong:", []*cobra.Command{doctorCommand(c), explainCommand(c), reconcileCommand(c)}},
		{"Do what a runtime does:", []*cobra.Command{allocateCommand(c), bindCommand(c), attachCommand(c), detachCommand(c), pauseCommand(c),
			resumeCommand(c), wakeCommand(c), releaseCommand(c), cancelCommand(c)}},
		{"Decide for the runner:", []*cobra.Command{poolCommand(c), quarantineCommand(c), bookCommand(c)}},
	} {
		c.root.AddGroup(&cobra.Group{ID: group.title, Title: group.title})
		for _, verb := range group.verbs {
			verb.GroupID = group.title
		}
		c.root.AddCommand(group.verbs...)
	}
	c.root.AddCommand(versionCommand(c), exitCodesTopic())
	return c
}

// knownFlag refuses what is not a flag, with the nearest one.
func knownFlag(cmd *cobra.Command, err error) error {
	unknown := new(pflag.NotExistError)
	if !errors.As(err, &unknown) || len(unknown.GetSpecifiedName()) < 2 {
		return err
	}
	var known []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			known = append(known, f.Name)
		}
	})
	if near, ok := nearest.To(unknown.GetSpecifiedName(), known); ok {
		return fmt.Errorf("%w; did you mean --%s?", err, near)
	}
	return err
}

// run carries out one command line and returns the code to exit with.
func (c *ctl) run(ctx context.Context, args []string) int {
	for _, arg := range args {
		if !utf8.ValidString(arg) { // JSON would make two names of this kind one
			return c.report(ctx, usageError{message: fmt.Sprintf("the argument %q is not UTF-8", arg)})
		}
	}
	cli.Complete(c.root)
	c.root.SetArgs(args)
	cmd, err := c.root.ExecuteContextC(ctx)
	if err != nil && !c.started {
		err = usageError{message: err.Error(), hint: fmt.Sprintf("see %s --help", cmd.CommandPath())}
	}
	return c.report(ctx, err)
}

// begin checks what all verbs share. It runs after the command line of the
// verb itself was accepted.
func (c *ctl) begin(cmd *cobra.Command, _ []string) error {
	if c.quiet && !c.forPeople() {
		return fmt.Errorf("--quiet and --output %s exclude each other", c.format.value)
	}
	if c.timeout <= 0 {
		return fmt.Errorf("--timeout must be above 0, not %s", c.timeout)
	}
	if cmd.Flags().Changed("timeout") {
		c.first = 0 // a time that was given is meant
	}
	c.started = true
	return nil
}

// forPeople reports that the answer is a page, and not a document.
func (c *ctl) forPeople() bool { return c.format.value == "table" || c.format.value == "wide" }

// call gives a verb the client and a context that ends at --timeout, later
// by extra when the daemon was asked to wait so long. It has ended already when
// the daemon gives no sign of life.
func (c *ctl) call(cmd *cobra.Command, extra time.Duration) (context.Context, context.CancelFunc, *client.Client) {
	ctx, cancel := context.WithTimeout(cmd.Context(), c.timeout+extra)
	ipamd := c.dial(c.socket)
	c.about.verb = cmd.CommandPath()
	if c.silent = c.answers(ctx, ipamd); c.silent != nil {
		cancel()
	}
	return ctx, cancel, ipamd
}

// callPass is [ctl.call] for what may take as long as a pass, unless --timeout was given.
func (c *ctl) callPass(cmd *cobra.Command) (context.Context, context.CancelFunc, *client.Client) {
	if cmd.Flags().Changed("timeout") {
		return c.call(cmd, 0)
	}
	return c.call(cmd, api.LongestPass)
}

// width is how many columns a line may have: COLUMNS, the terminal, or 80.
func (s streams) width() int {
	if n, err := strconv.Atoi(s.getenv("COLUMNS")); err == nil && n > 0 {
		return n
	}
	if n := s.columns(); n > 0 {
		return n
	}
	return 80
}

// colour reports whether the answer may be coloured (https://no-color.org).
func (c *ctl) colour() term.Paint {
	return term.Paint(c.terminal && !c.noColor && c.getenv("NO_COLOR") == "" && c.getenv("TERM") != "dumb")
}
