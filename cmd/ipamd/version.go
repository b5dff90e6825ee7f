package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/internal/build"
	"github.com/ipamd/ipamd/migrations"
)

// thisBuild is what the daemon says of its build over the socket.
func thisBuild() api.VersionReply {
	b := build.This()
	return api.VersionReply{Version: b.Version, Commit: b.Commit, Go: b.Go, Schema: migrations.Latest()}
}

func (c *command) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "What this ipamd was built from",
		Long:    "Prints the version, the commit, the Go release, and the schema that a book has.",
		Example: "  ipamd version",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			v := thisBuild()
			commit := v.Commit
			if commit == "" {
				commit = "unknown"
			}
			_, err := fmt.Fprintf(c.out, "ipamd %s\ncommit %s\n%s\nschema %d\n", v.Version, commit, v.Go, v.Schema)
			return err
		},
	}
}
