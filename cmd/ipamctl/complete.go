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

// complete registers how a flag is completed, whatever arguments there are. That
// fails only for a flag that does not exist: a mistake in this program, found by its
// first run.
func (c *ctl) complete(cmd *cobra.Command, flag string, f completion) {
	if err := cmd.RegisterFlagCompletionFunc(flag, func(cmd *cobra.Command, _ []string, part string) ([]string, cobra.ShellCompDirective) {
		return f(cmd, nil, part)
	}); err != nil {
		panic(err)
	}
}

// offer completes the first argument of a verb with what each pick takes from each
// lease, a value and a word about it, and nothing when the daemon does not answer in
// time. A name that does not print is not offered: a shell would obey it.
func (c *ctl) offer(picks ...func(api.Lease) (value, about string)) completion {
	return func(_ *cobra.Command, args []string, _ string) (values []string, _ cobra.ShellCompDirective) {
		ctx, cancel := context.WithTimeout(context.Background(), c.patience)
		defer cancel()
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		list, err := c.dial(c.socket).Leases(ctx, client.LeaseFilter{})
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		for _, l := range list.Leases {
			for _, pick := range picks {
				value, about := pick(l)
				if s := value + "\t" + about; value != "" && term.Word(value) == value && !slices.Contains(values, s) {
					values = append(values, s)
				}
			}
		}
		return values, cobra.ShellCompDirectiveNoFileComp
	}
}

func asLease(l api.Lease) (value, about string) {
	return l.ID, term.Word(l.Address) + " " + term.Sentence(string(l.State)) + " " + term.Maybe(l.Sandbox)
}

// asHeld offers a lease that a sandbox has, or had and whose release is not confirmed.
func asHeld(l api.Lease) (value, about string) {
	if !slices.Contains([]api.State{api.Reserved, api.Bound, api.Paused, api.Releasing}, l.State) {
		return "", ""
	}
	return asLease(l)
}

func asSandbox(l api.Lease) (value, about string) { return l.Sandbox, "sandbox" }

func asAddress(l api.Lease) (value, about string) {
	return l.Address, term.Sentence(string(l.State)) + " " + term.Maybe(l.Sandbox)
}

func asQuarantined(l api.Lease) (value, about string) {
	if l.State != api.Quarantined {
		return "", ""
	}
	return asAddress(l)
}

// pools completes the first argument of a verb with the names of the pools.
func (c *ctl) pools(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	ctx, cancel := context.WithTimeout(context.Background(), c.patience)
	defer cancel()
	list, err := c.dial(c.socket).Pools(ctx)
	if err != nil || len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return slices.DeleteFunc(poolNames(list.Pools), func(s string) bool { return term.Word(s) != s }), cobra.ShellCompDirectiveNoFileComp
}
