package main

import (
	"context"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/client"
	"github.com/ipamd/ipamd/internal/term"
)

// patience is how long a person who pressed tab waits for the daemon.
const patience = 500 * time.Millisecond

// A completion is what cobra asks for the values of an argument.
type completion = func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective)

// complete tells cobra how a flag is completed. That fails only for a flag
// that does not exist: a mistake in this program, found by its first run.
func (c *ctl) complete(cmd *cobra.Command, flag string, f completion) {
	if err := cmd.RegisterFlagCompletionFunc(flag, f); err != nil {
		panic(err)
	}
}

// completeShells gives cobra's completion verb examples, and has it refuse a shell
// that it does not know. By itself it prints its help and calls that a success,
// which a script takes for the completion.
func (c *ctl) completeShells() {
	c.root.InitDefaultCompletionCmd()
	for _, cmd := range c.root.Commands() {
		if cmd.Name() == "completion" {
			cmd.Example = "  source <(ipamctl completion bash)\n" +
				"  ipamctl completion zsh > ~/.zfunc/_ipamctl          # a folder of $fpath\n" +
				"  ipamctl completion fish > ~/.config/fish/completions/ipamctl.fish"
			cmd.Args = c.knownVerb
			cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
		}
	}
}

// suggest offers what pick takes from each lease, as the value and a word
// about it. When the daemon does not answer in time there is nothing to
// offer, silently. A name that does not print is not offered: a shell would
// obey it.
func (c *ctl) suggest(args []string, filter client.LeaseFilter, pick func(api.Lease) [][2]string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	ctx, cancel := context.WithTimeout(context.Background(), c.patience)
	defer cancel()
	list, err := c.dial(c.socket).Leases(ctx, filter)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var values []string
	for _, l := range list.Leases {
		for _, v := range pick(l) {
			if v[0] == "" || term.Word(v[0]) != v[0] {
				continue
			}
			if s := v[0] + "\t" + v[1]; !slices.Contains(values, s) {
				values = append(values, s)
			}
		}
	}
	return values, cobra.ShellCompDirectiveNoFileComp
}

func asLease(l api.Lease) [2]string {
	return [2]string{l.ID, term.Word(l.Address) + " " + term.Sentence(string(l.State)) + " " + term.Maybe(l.Sandbox)}
}

func asSandbox(l api.Lease) [2]string { return [2]string{l.Sandbox, "sandbox"} }

func asAddress(l api.Lease) [2]string {
	return [2]string{l.Address, term.Sentence(string(l.State)) + " " + term.Maybe(l.Sandbox)}
}

func (c *ctl) leaseIDs(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	return c.suggest(args, client.LeaseFilter{}, func(l api.Lease) [][2]string { return [][2]string{asLease(l)} })
}

func (c *ctl) sandboxes(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return c.suggest(nil, client.LeaseFilter{}, func(l api.Lease) [][2]string { return [][2]string{asSandbox(l)} })
}

func (c *ctl) leasesOrSandboxes(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	return c.suggest(args, client.LeaseFilter{}, func(l api.Lease) [][2]string {
		return [][2]string{asSandbox(l), asLease(l)}
	})
}

func (c *ctl) addresses(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	return c.suggest(args, client.LeaseFilter{}, func(l api.Lease) [][2]string { return [][2]string{asAddress(l)} })
}

func (c *ctl) addressesOrSandboxes(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	return c.suggest(args, client.LeaseFilter{}, func(l api.Lease) [][2]string {
		return [][2]string{asAddress(l), asSandbox(l)}
	})
}

func (c *ctl) quarantined(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	return c.suggest(args, client.LeaseFilter{State: string(api.Quarantined)}, func(l api.Lease) [][2]string {
		return [][2]string{asAddress(l)}
	})
}

func (c *ctl) poolNames(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	ctx, cancel := context.WithTimeout(context.Background(), c.patience)
	defer cancel()
	list, err := c.dial(c.socket).Pools(ctx)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return slices.DeleteFunc(poolNames(list.Pools), func(s string) bool { return term.Word(s) != s }), cobra.ShellCompDirectiveNoFileComp
}
