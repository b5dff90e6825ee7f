package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/internal/build"
	"github.com/ipamd/ipamd/internal/term"
)

// differs compares what both ends know of themselves; a build outside a
// checkout does not know its commit.
func differs(b build.Info, daemon *api.VersionReply) bool {
	return b.Version != daemon.Version || b.Commit != "" && daemon.Commit != "" && b.Commit != daemon.Commit
}

// versions is the answer of the verb: both ends, and whether they differ.
type versions struct {
	Client build.Info        `json:"client"`
	Daemon *api.VersionReply `json:"daemon"` // null when it did not answer
	Skew   bool              `json:"skew"`
}

func versionCommand(c *ctl) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "The versions of ipamctl and of the daemon",
		Long: `Shows both versions and says so when they differ. When the daemon does not
answer, ipamctl's own is shown and the exit code says why. -q prints
ipamctl's version.`,
		Example: "  ipamctl version\n  ipamctl version -o json",
		Args:    nothing,
		RunE: func(cmd *cobra.Command, _ []string) error {
			v := versions{Client: c.build}
			ctx, cancel, ipamd := c.call(cmd, 0)
			defer cancel()
			daemon, unanswered := ipamd.Version(ctx)
			if unanswered == nil {
				v.Daemon = daemon
				v.Skew = differs(c.build, daemon)
			}
			if err := c.answer(v, []string{v.Client.Version}, func(p *page) { p.drawVersions(v) }); err != nil {
				return err
			}
			return unanswered
		},
	}
}

func (p *page) drawVersions(v versions) {
	cols := term.Columns("", "VERSION", "COMMIT", "GO", "SCHEMA")
	rows := [][]string{{"ipamctl", term.Word(v.Client.Version), term.Maybe(v.Client.Commit), term.Word(v.Client.Go), "-"}}
	if d := v.Daemon; d != nil {
		rows = append(rows, []string{"ipamd", term.Word(d.Version), term.Maybe(d.Commit), term.Word(d.Go), fmt.Sprint(d.Schema)})
	}
	p.Table(cols, rows)
	if v.Skew {
		p.Line("\n%s", p.Warn("The two differ: restart ipamd, or use the ipamctl that came with it."))
	}
}
