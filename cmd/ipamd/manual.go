//go:build man

package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/ipamd/ipamd/config"
	"github.com/ipamd/ipamd/internal/manual"
)

// With the tag man this is another program: it writes ipamd's manual pages and
// completions. That of the configuration is what `ipamd config` prints.
func main() {
	if err := write(os.Args[1:]); err != nil {
		fmt.Fprintf(os.Stderr, "manual of ipamd: %v\n", err)
		os.Exit(1)
	}
}

func write(args []string) error {
	dir, volume, err := manual.FromArgs(args, "8")
	if err != nil {
		return err
	}
	volume.Also = []string{"ipamctl(1)", "ipamd.toml(5)"}
	if err := volume.Write(newCommand(os.Stdout, os.Stderr).root, dir); err != nil {
		return err
	}
	if err := volume.Alias(dir, "ipamd-warm", "ipamd-plumb"); err != nil { // the service of the warm slots
		return err
	}
	var document strings.Builder
	if err := config.Default().Write(&document); err != nil {
		return err
	}
	return volume.Settings(dir, "ipamd.toml", "the configuration of ipamd", config.DefaultPath, document.String())
}
