package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/migrations"
)

// thisBuild reads what the linker recorded of the module.
func thisBuild() api.VersionReply {
	v := api.VersionReply{Version: "devel", Go: runtime.Version(), Schema: migrations.Latest()}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	if of := info.Main.Version; of != "" && of != "(devel)" {
		v.Version = of
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			v.Commit = s.Value
		}
	}
	return v
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
