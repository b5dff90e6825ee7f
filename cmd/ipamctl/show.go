package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/client"
	"github.com/ipamd/ipamd/internal/term"
)

func showCommand(c *ctl) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "show LEASE|SANDBOX",
		Short: "Everything about one lease, or about each lease of a sandbox",
		Long: `Shows where a lease is used, what was seen of it, and of a lease that is
releasing what keeps its address from cooling. What has the form of a lease id
is looked up as one first; of an id the beginning or the end is enough. The
answer is always a list. -q prints the lease ids.`,
		Example:           "  ipamctl show web-1\n  ipamctl show 0197f2c0-5b7e-7c3a-9d41-2f6f0a1b2c3d -o yaml",
		Args:              exactly("a lease id or a sandbox"),
		ValidArgsFunction: c.offer(asSandbox, asLease),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, cancel, ipamd := c.call(cmd, 0)
			defer cancel()
			list, err := c.lookUp(ctx, ipamd, args[0])
			if err != nil {
				return err
			}
			for i := range list.Leases {
				list.Leases[i].Refused = refusedOf(ctx, ipamd, &list.Leases[i].Lease)
			}
			return c.answer(list, list.ids(), func(p *page) {
				for i, l := range list.Leases {
					if i > 0 {
						p.Line("")
					}
					p.drawLease(&l.Lease)
					if len(l.Refused) > 0 {
						p.Text("", "packets that its port may not send, by reason: "+p.refused(l.Refused))
					}
					p.drawBlockers(l.Blockers)
				}
			})
		},
	}
	return cmd
}

// A shown is one lease with what keeps it.
type shown struct {
	api.Lease
	Blockers []api.Blocker `json:"blockers,omitempty"`
	Refused  []api.Refused `json:"refused,omitempty"` // of its ports
}

// A shownList is the answer of show: an api.LeaseList with blockers.
type shownList struct {
	Leases   []shown `json:"leases"`
	Revision int64   `json:"revision"`
	Epoch    string  `json:"epoch"`
}

func (s *shownList) ids() []string {
	var ids []string
	for _, l := range s.Leases {
		ids = append(ids, l.ID)
	}
	return ids
}

// lookUp finds the leases that a person means by a name.
func (c *ctl) lookUp(ctx context.Context, ipamd *client.Client, name string) (*shownList, error) {
	var gone error
	if looksLikeLease(name) {
		c.about.lease = name
		reply, err := ipamd.Lease(ctx, name)
		if err == nil {
			return &shownList{[]shown{{Lease: reply.Lease, Blockers: reply.Blockers}}, reply.Revision, reply.Epoch}, nil
		}
		if !errors.Is(err, client.ErrNotFound) && !errors.Is(err, client.ErrLeaseGone) {
			return nil, err
		}
		gone = err
	}
	list, err := ipamd.Leases(ctx, client.LeaseFilter{Sandbox: name})
	switch {
	case err != nil:
		return nil, err
	case len(list.Leases) > 0:
		return explained(ctx, ipamd, list)
	case gone != nil:
		return nil, gone
	}
	if _, err := netip.ParseAddr(name); err == nil {
		return nil, usageError{message: fmt.Sprintf("%s is an address; show wants a lease id or a sandbox", name),
			hint: "who holds the address, and under which lease: ipamctl whois " + name}
	}
	id, err := c.leaseNamed(ctx, ipamd, name, itsLeases)
	if err != nil {
		return nil, err
	}
	if id == name {
		return nil, noLeaseOf("show", name, list)
	}
	return c.lookUp(ctx, ipamd, id)
}

// noLeaseOf says that a sandbox has no lease; list is where it was not found.
func noLeaseOf(verb, sandbox string, list *api.LeaseList) error {
	return fmt.Errorf("%s %s: %w", verb, term.Word(sandbox), &api.Error{
		Code: api.NotFound, Message: "no lease has this id or this sandbox",
		Revision: list.Revision, Epoch: list.Epoch,
	})
}

// explained asks for the blockers of each lease that is releasing. One that
// ended since the listing stays in it as it was.
func explained(ctx context.Context, ipamd *client.Client, list *api.LeaseList) (*shownList, error) {
	out := &shownList{Revision: list.Revision, Epoch: list.Epoch}
	for _, l := range list.Leases {
		one := shown{Lease: l}
		if l.State == api.Releasing {
			switch reply, err := ipamd.Lease(ctx, l.ID); {
			case err == nil:
				one = shown{Lease: reply.Lease, Blockers: reply.Blockers}
			case !errors.Is(err, client.ErrNotFound) && !errors.Is(err, client.ErrLeaseGone):
				return nil, err
			}
		}
		out.Leases = append(out.Leases, one)
	}
	return out, nil
}

// drawLease writes one lease with all that is known of it.
func (p *page) drawLease(l *api.Lease) {
	is := p.state(l.State)
	if len(l.Conflict) > 0 {
		is = p.Bad("in conflict") + ": " + is + ", it belongs to " + term.Maybe(l.Sandbox) + ", and another uses it"
	}
	p.Line("%s is %s", p.Bold(leased(l)), is)
	p.drawLeaseFields(l)
	p.drawConflict(l)
	if len(l.Evidence) > 0 {
		p.Line("  %s", p.Dim("evidence"))
		for _, s := range l.Evidence {
			p.Line("    %s: %s", term.Word(s.Witness), p.seen(s))
		}
	}
}

// drawConflict writes who is on the address of a lease, as it was noted, while
// that stands.
func (p *page) drawConflict(l *api.Lease) {
	part(p, "In conflict, as it was noted", term.Wrapping("WITNESS", "WHOSE", "SAW"), l.Conflict, func(s api.Sighting) []string {
		return []string{term.Word(s.Witness), p.whose(s), p.seen(s)}
	})
}

func (p *page) drawLeaseFields(l *api.Lease) {
	owner := ""
	if l.Sandbox != "" {
		owner = fmt.Sprintf("%s (uid %s, attempt %d)", term.Word(l.Sandbox), term.Maybe(l.UID), l.Attempt)
	}
	var containers []string
	for _, ctr := range l.Containers {
		containers = append(containers, container(ctr))
	}
	deadline := ""
	if l.BindBy != nil {
		deadline = p.when(*l.BindBy)
	}
	optional := func(s string) string {
		if s == "" {
			return ""
		}
		return term.Word(s)
	}
	p.Fields(
		[2]string{"lease", term.Word(l.ID)},
		[2]string{"sandbox", owner},
		[2]string{"interface", optional(l.Interface)},
		[2]string{"pool", fmt.Sprintf("%s (uid %s)", term.Word(l.Pool), term.Maybe(l.PoolUID))},
		[2]string{"outside", term.Sentence(l.Outside)},
		[2]string{"created", p.when(l.Created)},
		[2]string{"since", p.when(l.Since)},
		[2]string{"bind by", deadline},
		[2]string{"last traffic", p.whenKnown(l.LastTraffic)},
		[2]string{"sleep", sleep(l.Sleep)},
		[2]string{"wake", p.flight(l.Sleep)},
		[2]string{"containers", strings.Join(containers, ", ")},
		[2]string{"netns", optional(l.Netns)},
		[2]string{"host interface", optional(l.HostInterface)},
		[2]string{"leased name", optional(l.HostInterfaceName)},
		[2]string{"mac", optional(l.MAC)},
		[2]string{"labels", labels(l.Labels)},
		[2]string{"reason", term.Sentence(l.Reason)},
		[2]string{"hold", term.Sentence(l.Hold)},
		[2]string{"revision", fmt.Sprint(l.Revision)},
	)
}
