package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"sync"

	"github.com/spf13/cobra"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/internal/term"
	"github.com/ipamd/ipamd/routes"
)

func routesCommand(c *ctl) *cobra.Command {
	watch := false
	cmd := &cobra.Command{
		Use:   "routes",
		Short: "Where a gateway sends the packets of each sandbox",
		Long: `Shows the table that a gateway makes of the stream of changes: the addresses of
each sandbox, and whether packets are sent there. A paused sandbox keeps its
route and is not served. The line with the checksum is how two gateways compare
themselves. --watch goes on with a line for each route that changes, until
Ctrl-C; changes that come together are one. -q prints the sandboxes.`,
		Example: `  ipamctl routes
  ipamctl routes --watch -o json`,
		Args: nothing,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if watch && c.format.value == "yaml" {
				return usageError{message: "routes --watch prints lines", hint: "for a program: ipamctl routes --watch -o json"}
			}
			return c.routes(cmd, watch)
		},
	}
	cmd.Flags().BoolVar(&watch, "watch", false, "go on with each change")
	return cmd
}

// routes keeps a table as a gateway does, and shows it.
func (c *ctl) routes(cmd *cobra.Command, watch bool) error {
	ready, cancel, ipamd := c.call(cmd, 0)
	defer cancel()
	ctx, stop := context.WithCancelCause(cmd.Context())
	var table routes.Table
	var following sync.WaitGroup
	defer following.Wait()
	defer stop(nil)
	following.Go(func() {
		table.Follow(ctx, ipamd, func(err error) {
			if !table.Ready() || final(err) {
				stop(err)
				return
			}
			c.note("the stream was interrupted, and is resumed: %v", err)
		})
	})
	changed := table.Changed()
	for !table.Ready() {
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-ready.Done():
			return fmt.Errorf("read the routes: %w", ready.Err())
		}
		changed = table.Changed()
	}
	all, status := table.All(), table.Status()
	if err := c.showRoutes(all, status, watch); err != nil || !watch {
		return err
	}
	for {
		select {
		case <-changed:
		case <-ctx.Done():
			if cmd.Context().Err() != nil {
				return nil // Ctrl-C is how it ends
			}
			return context.Cause(ctx)
		}
		changed = table.Changed()
		now := table.All()
		if err := c.showChanges(all, now); err != nil {
			return err
		}
		all = now
	}
}

// A routeLine is a route as programs read it.
type routeLine struct {
	Change    string    `json:"change,omitempty"` // of --watch: "set" or "gone"
	Sandbox   string    `json:"sandbox"`
	UID       string    `json:"uid"`
	Interface string    `json:"interface"`
	Attempt   int64     `json:"attempt"`
	LeaseID   string    `json:"lease_id"`
	Address   string    `json:"address"`
	State     api.State `json:"state"`
	Served    bool      `json:"served"`
	Revision  int64     `json:"revision"`
}

func lineOf(change string, r routes.Route) routeLine {
	return routeLine{change, r.Sandbox, r.UID, r.Interface, r.Attempt, r.Lease, r.Addr.String(), r.State, r.Served(), r.Revision}
}

// showRoutes shows the whole table; lines has it as lines for a program, too.
func (c *ctl) showRoutes(all []routes.Route, status routes.Status, lines bool) error {
	if lines && !c.forPeople() {
		return c.showChanges(nil, all)
	}
	reply := struct {
		Epoch    string      `json:"epoch"`
		Revision int64       `json:"revision"`
		Checksum string      `json:"checksum"`
		Routes   []routeLine `json:"routes"`
	}{status.Epoch, status.Revision, fmt.Sprintf("%016x", status.Checksum), []routeLine{}}
	var names []string
	for _, r := range all {
		reply.Routes = append(reply.Routes, lineOf("", r))
		names = append(names, r.Sandbox)
	}
	return c.answer(reply, slices.Compact(names), func(p *page) {
		if len(all) > 0 {
			table(p, term.Columns("SANDBOX", "ADDRESS", "STATE", "SERVED", "LEASE"), all, func(r routes.Route) []string {
				served := "yes"
				if !r.Served() {
					served = "no"
				}
				return []string{term.Word(r.Sandbox), r.Addr.String(), p.state(r.State), served, term.Word(r.Lease)}
			})
		}
		p.Line("%s", status)
	})
}

// showChanges prints a line for each route that is another than before.
func (c *ctl) showChanges(before, now []routes.Route) error {
	was := make(map[netip.Addr]routes.Route, len(before))
	for _, r := range before {
		was[r.Addr] = r
	}
	for _, r := range now {
		old, had := was[r.Addr]
		delete(was, r.Addr)
		if had && old == r {
			continue
		}
		if err := c.showChange("set", r); err != nil {
			return err
		}
	}
	for _, r := range before {
		if _, gone := was[r.Addr]; gone {
			if err := c.showChange("gone", r); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c *ctl) showChange(change string, r routes.Route) error {
	switch {
	case c.quiet:
		return c.line(term.Sentence(r.Sandbox))
	case !c.forPeople():
		return c.json(lineOf(change, r))
	case change == "gone":
		return c.line(fmt.Sprintf("- %s %s", term.Word(r.Sandbox), r.Addr))
	}
	return c.line(fmt.Sprintf("+ %s %s %s", term.Word(r.Sandbox), r.Addr, term.Word(string(r.State))))
}

// json prints a line for a program.
func (c *ctl) json(v any) error {
	line, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode the answer: %w", err)
	}
	return c.line(term.EscapeJSON(string(line)))
}
