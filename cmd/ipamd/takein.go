package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/ipamd/ipamd/config"
	"github.com/ipamd/ipamd/rebuild"
)

func (c *command) restoreCommand() *cobra.Command {
	return c.takeInCommand("restore", "Go back to a backup of the book", `Makes a new lease book, with a new epoch, from a backup, from the present book
and from what the kernel and the container runtime show, while the daemon is
stopped. Without --confirm it says what would become of each lease, and changes
nothing.

What is now wins over the backup: a lease of the present book stays as it is
(kept), and one that the present book saw end is left out. Of the backup come
back those of which the present book knows nothing: with their workload live as
leases (back), else their addresses cool or are quarantined. The present book
becomes book.db.broken-<time>, with its log; nothing is deleted. The history
stays in it; pools, cancelled attempts and what wakes a paused sandbox come
along. A backup that is broken, or another runner's or machine's, is refused.`,
		`  ipamd restore /root/book-backup.db            what it would do, and no more
  ipamd restore /root/book-backup.db --confirm
  ipamd restore /root/book-backup.db -o json    for a program: see "became"`, false)
}

func (c *command) importCommand() *cobra.Command {
	return c.takeInCommand("import", "Take over the predecessor's lease file", `Makes a new lease book, with a new epoch, from the SQLite file of the program
that kept the addresses before (tables ips, subnets and interfaces), from the
present book and from what the kernel and the container runtime show, while the
daemon and that program are stopped. Without --confirm it says what would become
of each address, and changes nothing.

That file has no owners. They come from the labels of the containers that live
with the addresses; an address that the file holds and no container explains is
quarantined, and one that it released cools. What the present book knows wins. A
row that cannot be understood is reported by its table, its key and the field,
and its address is held. A prefix that the file gave away inside of a pool is
refused until the configuration excludes it there.`,
		`  ipamd import /var/lib/runtime/net.db            what it would do, and no more
  ipamd import /var/lib/runtime/net.db --confirm
  ipamd import /var/lib/runtime/net.db -o json    for a program: see "became"`, true)
}

func (c *command) takeInCommand(verb, short, long, example string, predecessor bool) *cobra.Command {
	var confirm bool
	cmd := &cobra.Command{Use: verb + " FILE", Short: short, Long: long, Example: example, Args: cobra.ExactArgs(1)}
	cmd.Flags().BoolVar(&confirm, "confirm", false, "do it; without it nothing is changed")
	c.makesBook(cmd, func(ctx context.Context, cfg config.Config, open rebuild.Opener, args []string) (*rebuild.Report, error) {
		if args[0] == "" {
			return nil, usageError{errors.New("FILE is empty")}
		}
		file, err := filepath.Abs(args[0])
		if err != nil {
			return nil, err
		}
		k := rebuild.TakeIn{Config: cfg, Open: open, File: file, Import: predecessor, Confirm: confirm}
		report, err := k.Run(ctx)
		if err != nil {
			return nil, fmt.Errorf("%s %s: %w", verb, file, err)
		}
		return report, nil
	})
	return cmd
}
