package main

import (
	"slices"

	"github.com/spf13/cobra"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/internal/term"
)

func warmCommand(c *ctl) *cobra.Command {
	var pool string
	cmd := &cobra.Command{
		Use:   "warm",
		Short: "List the warm slots",
		Long: `Lists the warm slots: namespaces with a port and an address, made before a
sandbox asks for one. A slot that is ready is given by allocate --warm; one that
is stale was made by another spec than its pool's. -o wide shows namespaces and
hashes of specs, -q prints the paths of the namespaces.`,
		Example: `  ipamctl warm
  ipamctl warm --pool default -o json | jq -r '.slots[].state'
  ipamctl pool apply default --warm 16
  ipamctl allocate web-1 --warm require`,
		Args: nothing,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cancel, ipamd := c.call(cmd, 0)
			defer cancel()
			list, err := ipamd.Warm(ctx, pool)
			if err != nil {
				return err
			}
			if len(list.Slots) == 0 {
				c.note("no warm slots. ipamctl pool apply POOL --warm 16 keeps some, ipamctl status says why there are none.")
			}
			paths := make([]string, len(list.Slots))
			for i, s := range list.Slots {
				paths[i] = s.Netns
			}
			return c.answer(list, paths, func(p *page) {
				if len(list.Slots) > 0 {
					p.drawWarm(list.Slots)
				}
			})
		},
	}
	cmd.Flags().StringVar(&pool, "pool", "", "of this `pool` alone")
	c.complete(cmd, "pool", c.pools)
	return cmd
}

func (p *page) drawWarm(slots []api.Slot) {
	cols := term.Columns("ADDRESS", "POOL", "STATE", "SINCE", "SANDBOX", "NOTE")
	cols[5].Yield = true
	if p.wide {
		cols = append(cols, term.Columns("NETNS", "SPEC")...)
	}
	table(p, cols, slots, func(s api.Slot) []string {
		row := []string{term.Word(s.Address), term.Word(s.Pool), p.slotState(s.State), p.ago(s.Since), term.Maybe(s.Sandbox), slotNote(s)}
		if p.wide {
			row = append(row, term.Word(s.Netns), term.Word(s.SpecHash))
		}
		return row
	})
}

func (p *page) slotState(s api.SlotState) string {
	if slices.Contains([]api.SlotState{api.SlotReady, api.SlotClaimed}, s) {
		return term.Word(string(s))
	}
	return p.Warn(term.Word(string(s)))
}

// slotNote is why a slot is not given, or not for long.
func slotNote(s api.Slot) string {
	switch {
	case s.Broken != "":
		return term.Sentence(s.Broken)
	case s.Stale:
		return "stale: its pool wants another spec"
	}
	return "-"
}
