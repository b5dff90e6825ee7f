package main

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/client"
	"github.com/ipamd/ipamd/internal/term"
)

func rulesCommand(c *ctl) *cobra.Command {
	return &cobra.Command{
		Use:   "rules [PORT|LEASE|SANDBOX|ADDRESS]",
		Short: "What nftables lets each port send, and what was refused",
		Long: `Shows the rules that ipamd keeps in nftables: for each port of the bridges
which addresses and MAC it may use, by whose lease, and how many packets were
refused, by reason (with enforce.mode observe they were only counted). The
kernel's table is read and compared with the book; the exit code is 1 where it
differs. The address of a lease that has no port, a hibernated one for example,
is kept from all ports, and shown without one. An argument selects by the name
of the link, a lease id or its beginning or end, a sandbox or an address, also
one in a delegated prefix. -q prints the names of the ports.`,
		Example:           "  ipamctl rules\n  ipamctl rules web-1\n  ipamctl rules -o json",
		Args:              atMost("a port, a lease id, a sandbox or an address"),
		ValidArgsFunction: c.offer(asSandbox, asLease),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, cancel, ipamd := c.call(cmd, 0)
			defer cancel()
			reply, err := ipamd.Rules(ctx, "")
			if err != nil {
				return err
			}
			if len(args) > 0 {
				if selectRules(reply, args[0]); len(reply.Ports)+len(reply.Kept) == 0 && reply.Mode != "off" {
					return fmt.Errorf("rules %s: %w", term.Word(args[0]), &api.Error{Code: api.NotFound, Revision: reply.Revision, Epoch: reply.Epoch,
						Message: "no port of the bridges has this name, or is that of this lease, sandbox or address"})
				}
			}
			var names []string
			for _, p := range reply.Ports {
				names = append(names, p.Port)
			}
			if err := c.answer(reply, names, func(p *page) { p.drawRules(reply) }); err != nil {
				return err
			}
			if len(reply.Differences) > 0 {
				return exitWith(exitOther)
			}
			return nil
		},
	}
}

// selectRules leaves what a person means by a name.
func selectRules(r *api.RulesReply, name string) {
	is := func(a api.Allowed) bool {
		return a.LeaseID == name || a.Sandbox == name || a.Address == name || within(a.Address, name)
	}
	ports, kept := rulesOf(r, name, is)
	if len(ports)+len(kept) == 0 {
		ports, kept = rulesOf(r, "", func(a api.Allowed) bool { return len(withID([]api.Lease{{ID: a.LeaseID}}, name)) > 0 })
	}
	r.Ports, r.Kept = ports, kept
}

func rulesOf(r *api.RulesReply, port string, is func(api.Allowed) bool) (ports []api.PortRules, kept []api.Allowed) {
	for _, p := range r.Ports {
		if port != "" && p.Port == port || slices.ContainsFunc(p.Allowed, is) {
			ports = append(ports, p)
		}
	}
	for _, a := range r.Kept {
		if is(a) {
			kept = append(kept, a)
		}
	}
	return ports, kept
}

// within reports whether an address, however it is written, is one that is allowed or in a prefix
// that is.
func within(allowed, addr string) bool {
	a, err := netip.ParseAddr(addr)
	if err != nil {
		return false
	}
	p, err := netip.ParsePrefix(allowed)
	if err != nil {
		one, err := netip.ParseAddr(allowed)
		return err == nil && one == a
	}
	return p.Contains(a)
}

func (p *page) drawRules(r *api.RulesReply) {
	if r.Mode == "off" {
		p.Line("enforce.mode is off: ipamd holds no port to its leases, without a table bridge ipamd")
		p.Text("", "netdev ipamd-wake and bridge ipamd-idle may be there: they are of pauses and of [idle]")
		p.Text("", "next: enforce.mode = 'observe' in ipamd's configuration, and restart it")
		return
	}
	is := p.Good("the kernel has them")
	switch {
	case r.Why != "":
		is = p.Bad("they do not hold") + ": " + term.Sentence(r.Why)
	case len(r.Differences) > 0:
		is = p.Bad("the kernel has others")
	case !r.Held:
		is = p.Warn("they are being made")
	case !r.Compared:
		is = p.Warn("binds changed them while they were read, so they are not compared")
	}
	p.Line("%s, unleased ports %s: %s, table %s, %s", r.Mode, r.Unleased, is, r.Table, term.Plural(r.Elements, "element"))
	if r.Foreign > 0 {
		p.Text("", fmt.Sprintf("another program changed the table %d times, and it was repaired %d times", r.Foreign, r.Repairs))
	}
	part(p, "Ports", term.Columns("PORT", "BRIDGE", "ADDRESS", "MAC", "SANDBOX", "REFUSED"), append(lines(r.Ports), kept(r.Kept)...), func(l portLine) []string {
		return []string{term.Maybe(l.Port), term.Maybe(l.Bridge), term.Maybe(l.Address), term.Maybe(l.MAC), term.Maybe(l.Sandbox), p.refused(l.refused)}
	})
	if len(r.Gone) > 0 {
		p.Text("", "earlier, and of ports that are no more: "+p.refused(r.Gone))
	}
	if len(r.Differences) > 0 {
		p.Heading("Not as the book asks for")
		for _, d := range r.Differences {
			what := term.Sentence(d.What)
			switch {
			case d.Element && d.Missing:
				what = "missing: " + what
			case d.Element:
				what = "too much: " + what
			}
			if d.LeaseID != "" {
				what += " (lease " + term.Word(d.LeaseID) + ")"
			}
			p.Text("  ", what)
		}
	}
}

// A portLine is one address of a port; a port without any has one, too.
type portLine struct {
	api.Allowed
	Port, Bridge string
	refused      []api.Refused
}

func lines(ports []api.PortRules) (out []portLine) {
	for _, p := range ports {
		if len(p.Allowed) == 0 {
			l := portLine{Port: p.Port, Bridge: p.Bridge, refused: p.Refused}
			if p.Trusted {
				l.Address = "trusted"
			}
			out = append(out, l)
		}
		for i, a := range p.Allowed {
			l := portLine{Allowed: a, Port: p.Port, Bridge: p.Bridge}
			if i == 0 {
				l.refused = p.Refused // they are the port's
			}
			out = append(out, l)
		}
	}
	return out
}

func kept(all []api.Allowed) (out []portLine) {
	for _, a := range all {
		out = append(out, portLine{Allowed: a})
	}
	return out
}

// refused counts packets by reason.
func (p *page) refused(all []api.Refused) string {
	var out []string
	for _, r := range all {
		out = append(out, fmt.Sprintf("%d %s", r.Packets, r.Reason))
	}
	if len(out) == 0 {
		return "-"
	}
	return p.Warn(strings.Join(out, ", "))
}

// refusedOf is what was refused of a lease's ports; nothing where no rules are kept, or
// where the daemon is older.
func refusedOf(ctx context.Context, ipamd *client.Client, l *api.Lease) (out []api.Refused) {
	if l.State != api.Bound && l.State != api.Paused && l.State != api.Releasing {
		return nil
	}
	r, err := ipamd.Rules(ctx, l.ID)
	if err != nil {
		return nil // the lease itself is the answer
	}
	for _, p := range r.Ports {
		out = append(out, p.Refused...)
	}
	return out
}
