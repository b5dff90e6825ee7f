package main

import (
	"cmp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/client"
	"github.com/ipamd/ipamd/internal/poolmap"
	"github.com/ipamd/ipamd/internal/term"
)

func leasesCommand(c *ctl) *cobra.Command {
	state := newChoice(append([]string{""}, poolmap.States()...)...)
	order := newChoice("address", "sandbox", "since", "state")
	filter := client.LeaseFilter{}
	var labels []string
	cmd := &cobra.Command{
		Use:     "leases",
		Aliases: []string{"ls"},
		Short:   "List the leases",
		Long: `Lists every address that is not free: who holds it, in which state, since when.
Filters combine. LEASE is the end of the id that is enough to name it; a column
that says the same of all is left out. -o wide has all columns, the last traffic
among them, and the whole ids. -q prints the whole ids.`,
		Example: `  ipamctl leases
  ipamctl leases --sandbox web-1
  ipamctl leases --label tier=front --sort since
  ipamctl leases --state releasing -q`,
		Args: nothing,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cancel, ipamd := c.call(cmd, 0)
			defer cancel()
			filter.State = state.value
			list, err := ipamd.Leases(ctx, filter)
			if err != nil {
				return err
			}
			list.Leases = slices.DeleteFunc(list.Leases, func(l api.Lease) bool { return !labelled(l, labels) })
			slices.SortStableFunc(list.Leases, orders[order.value])
			if len(list.Leases) == 0 {
				if filter == (client.LeaseFilter{}) && len(labels) == 0 {
					c.note("no leases: every address is free. ipamctl pools shows the room, ipamctl allocate SANDBOX takes one.")
				} else {
					c.note("no lease matches. ipamctl leases shows all.")
				}
			}
			return c.answer(list, leaseIDs(list.Leases), func(p *page) {
				if len(list.Leases) > 0 {
					p.drawLeases(list.Leases)
				}
			})
		},
	}
	f := cmd.Flags()
	f.StringVar(&filter.Sandbox, "sandbox", "", "only this `sandbox`")
	f.Var(&state, "state", "only this `state`: "+state.want())
	f.StringVar(&filter.Pool, "pool", "", "only this `pool`")
	f.StringArrayVar(&labels, "label", nil, "only with this label, a `key` or key=value; may be repeated")
	f.Var(&order, "sort", "by this `column`: "+order.want())
	c.complete(cmd, "sandbox", c.offer(asSandbox))
	c.complete(cmd, "state", state.complete)
	c.complete(cmd, "pool", c.pools)
	c.complete(cmd, "sort", order.complete)
	return cmd
}

// orders compare two leases. The daemon lists them in the order of their
// addresses; since is the latest change last.
var orders = map[string]func(a, b api.Lease) int{
	"address": func(a, b api.Lease) int { return 0 },
	"sandbox": func(a, b api.Lease) int { return strings.Compare(a.Sandbox, b.Sandbox) },
	"since":   func(a, b api.Lease) int { return a.Since.Compare(b.Since) },
	"state": func(a, b api.Lease) int {
		return slices.Index(poolmap.States(), string(a.State)) - slices.Index(poolmap.States(), string(b.State))
	},
}

// labelled reports whether a lease has all of the labels, each a key or key=value.
func labelled(l api.Lease, wanted []string) bool {
	return !slices.ContainsFunc(wanted, func(want string) bool {
		key, value, valued := strings.Cut(want, "=")
		has, there := l.Labels[key]
		return !there || valued && has != value
	})
}

// drawLeases writes a table of leases. One that is not wide leaves out the
// columns that say the same of all, and shortens the ids.
func (p *page) drawLeases(leases []api.Lease) {
	wide := p.wide
	ids := leaseIDs(leases)
	if !wide {
		ids = shortIDs(leases)
	}
	cols := term.Columns("ADDRESS", "STATE", "SANDBOX", "UID", "INTERFACE", "SINCE", "TRAFFIC", "POOL", "PORT", "LEASE")
	cols[2].Yield = true
	rows := make([][]string, len(leases))
	for i, l := range leases {
		rows[i] = []string{
			place(l.Address, l.PrefixLength), p.state(l.State) + p.outside(&l), term.Maybe(l.Sandbox), term.Maybe(l.UID), term.Maybe(l.Interface),
			p.ago(l.Since), p.lastTraffic(&l), term.Word(l.Pool), term.Maybe(cmp.Or(l.HostInterface, l.HostInterfaceName)), term.Word(ids[i]),
		}
	}
	if !wide {
		for _, title := range []string{"PORT", "POOL", "TRAFFIC", "INTERFACE", "UID"} {
			at := slices.IndexFunc(cols, func(col term.Column) bool { return col.Title == title })
			values := make(map[string]bool)
			for _, row := range rows {
				values[row[at]] = true
			}
			delete(values, "-")
			if title == "UID" || title == "PORT" || title == "TRAFFIC" || len(values) < 2 {
				cols = slices.Delete(cols, at, at+1)
				for i := range rows {
					rows[i] = slices.Delete(rows[i], at, at+1)
				}
			}
		}
	}
	p.Table(cols, rows)
}

// lastTraffic is how long ago a lease had traffic, where that is known.
func (p *page) lastTraffic(l *api.Lease) string {
	if l.LastTraffic == nil {
		return "-"
	}
	return p.ago(*l.LastTraffic)
}

// outside marks a lease that stands outside of its pool.
func (p *page) outside(l *api.Lease) string {
	if l.Outside == "" {
		return ""
	}
	return ", " + p.Warn("outside")
}

func leaseID(l *api.Lease) string { return l.ID }

func leaseIDs(leases []api.Lease) []string { return each(leases, leaseID) }

// each takes one word from each lease.
func each(leases []api.Lease, word func(*api.Lease) string) []string {
	words := make([]string, len(leases))
	for i := range leases {
		words[i] = word(&leases[i])
	}
	return words
}
