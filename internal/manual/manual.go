// Package manual writes a program's manual pages and shell completions from
// its command line, so that there is no second text to keep true. It is linked
// into no program that runs on a host: only what `make man` builds has it.
//
// cobra/doc is not used: it reads a Long as Markdown, which takes tables and <names> for
// prose and HTML; it leaves topics out, dates a page by its month, has no place for
// ENVIRONMENT, FILES and EXIT STATUS, and does not write ipamd.toml(5).
package manual

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/spf13/cobra"
)

// A Volume is what the pages of a program have in common.
type Volume struct {
	Section string    // of the manual: "1" for what any user runs, "8" for a daemon
	Source  string    // program and version
	Date    time.Time // of the source, in UTC
	Also    []string  // what to read beside the program's own page, like "ipamctl(1)"
	More    []Part    // of the program's own page, before SEE ALSO
}

// A Part is a section of a page; its text is as a command's Long is.
type Part struct{ Title, Text string }

// FromArgs reads the command line that `make man` gives: the folder to write
// into, the program and its version, and the source's date as Unix seconds.
func FromArgs(args []string, section string) (dir string, v Volume, err error) {
	if len(args) != 3 {
		return "", v, fmt.Errorf("want DIR SOURCE SECONDS, got %d arguments", len(args))
	}
	seconds, err := strconv.ParseInt(args[2], 10, 64)
	if err != nil {
		return "", v, fmt.Errorf("the date %q is no number of seconds", args[2])
	}
	return args[0], Volume{Section: section, Source: args[1], Date: time.Unix(seconds, 0).UTC()}, nil
}

// Write writes a page for the program and for each verb and topic of it, and one that
// leads there for each alias of a verb, into dir/man/manSECTION, and its completions into
// dir/bash, dir/zsh and dir/fish under the names that the shells look for. The folders are
// made.
func (v Volume) Write(root *cobra.Command, dir string) error {
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	if err := v.tree(root, filepath.Join(dir, "man", "man"+v.Section)); err != nil {
		return err
	}
	var bash, zsh, fish bytes.Buffer
	if err := errors.Join(root.GenBashCompletionV2(&bash, true), root.GenZshCompletion(&zsh),
		root.GenFishCompletion(&fish, true)); err != nil {
		return fmt.Errorf("write the completions of %s: %w", root.Name(), err)
	}
	return errors.Join(
		write(filepath.Join(dir, "bash", root.Name()), bash.String()),
		write(filepath.Join(dir, "zsh", "_"+root.Name()), zsh.String()),
		write(filepath.Join(dir, "fish", root.Name()+".fish"), fish.String()),
	)
}

func (v Volume) tree(cmd *cobra.Command, dir string) error {
	cmd.InitDefaultHelpFlag()
	if err := write(filepath.Join(dir, dashed(cmd)+"."+v.Section), v.verb(cmd)); err != nil {
		return err
	}
	for _, alias := range aliases(cmd) {
		if err := v.alias(dir, alias, dashed(cmd)); err != nil {
			return err
		}
	}
	for _, sub := range pages(cmd) {
		if err := v.tree(sub, dir); err != nil {
			return err
		}
	}
	return nil
}

// Alias writes a further name for a page that [Volume.Write] writes: of a service, for one, that
// runs the verb.
func (v Volume) Alias(dir, name, page string) error {
	return v.alias(filepath.Join(dir, "man", "man"+v.Section), name, page)
}

func (v Volume) alias(dir, name, page string) error {
	file := func(name string) string { return name + "." + v.Section }
	return write(filepath.Join(dir, file(name)), ".so man"+v.Section+"/"+file(page)+"\n")
}

// write makes a file and the folder that it is in.
func write(path, content string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("write the manual: %w", err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		return fmt.Errorf("write the manual: %w", err)
	}
	return nil
}
