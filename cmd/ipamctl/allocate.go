package main

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/internal/term"
)

func allocateCommand(c *ctl) *cobra.Command {
	var (
		req    api.AllocateRequest
		within time.Duration
		pairs  []string
	)
	var attach api.AttachRequest
	var warm api.WarmRequest
	var wait time.Duration
	policy := newChoice("", string(api.WarmPrefer), string(api.WarmRequire), string(api.WarmNever))
	empty := newChoice("", string(api.OnEmptyCold), string(api.OnEmptyWait), string(api.OnEmptyFail))
	family := newChoice("", string(api.V4), string(api.V6), string(api.Dual))
	cmd := &cobra.Command{
		Use:   "allocate SANDBOX",
		Short: "Take an address for a sandbox",
		Long: `Asks for an address that no lease holds and no witness sees. Asked again for
the same sandbox uid, pool, interface and family it answers with the same
lease. An address that is not bound in time is given back. -q prints the
lease ids.`,
		Example: `  ipamctl allocate web-1
  ipamctl allocate web-1 --family dual --bind-within 15m
  ipamctl allocate web-1 --address 10.8.64.7 --label tier=front
  ipamctl allocate web-1 --prefix-length 28 --interface nested0
  ipamctl allocate web-1 --host-interface-name veth%d
  ipamctl allocate web-1 --netns /run/netns/web-1
  ipamctl allocate web-1 --warm prefer
  ipamctl allocate web-1 --warm require --on-empty wait --wait 5s`,
		Args:              exactly("the sandbox's name"),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			var err error
			if req.Labels, err = someLabels(pairs); err != nil {
				return err
			}
			if cmd.Flags().Changed("attempt") && req.Attempt < 1 {
				return usageError{message: "--attempt must be 1 or more"}
			}
			if cmd.Flags().Changed("bind-within") {
				if within <= 0 {
					return usageError{message: "--bind-within must be above 0"}
				}
				req.BindWithin = api.Lasting(within)
			}
			if attach != (api.AttachRequest{}) {
				req.Attach = &attach
			}
			warm.Policy, warm.OnEmpty = api.WarmPolicy(policy.value), api.OnEmpty(empty.value)
			if wait > 0 {
				warm.Wait = api.Lasting(wait)
			}
			if warm != (api.WarmRequest{}) {
				req.Warm = &warm
			}
			req.Sandbox, req.Family = args[0], api.Family(family.value)
			c.about.address, c.about.pool = req.Address, req.Pool
			ctx, cancel, ipamd := c.call(cmd, wait)
			defer cancel()
			reply, err := ipamd.Allocate(ctx, req)
			if err != nil {
				return err
			}
			return c.answer(reply, leaseIDs(reply.Leases), func(p *page) { p.drawAllocation(reply) })
		},
	}
	f := cmd.Flags()
	f.StringVar(&req.UID, "uid", "", "the sandbox's incarnation, a `uid`; its name when left out")
	f.Int64Var(&req.Attempt, "attempt", 0, "the `number` of this attempt, from 1")
	f.StringVar(&req.Pool, "pool", "", "from this `pool`; the first one when left out")
	f.Var(&family, "family", "`family`: "+family.want())
	f.StringVar(&req.Interface, "interface", "", "the sandbox's `interface`; eth0 when left out")
	f.StringVar(&req.Address, "address", "", "this `address` or an error")
	f.IntVar(&req.PrefixLength, "prefix-length", 0, "a delegated prefix of this `length` instead of an address")
	f.StringVar(&req.HostInterfaceName, "host-interface-name", "", "lease this `name` of a link on the host too; veth%d: one with a number")
	f.StringVar(&attach.Netns, "netns", "", "make its port in the network namespace at this `path`, too")
	f.StringVar(&attach.MAC, "mac", "", "`MAC` of the sandbox's end of the port, with --netns")
	f.Var(&policy, "warm", "take a warm slot: "+policy.want())
	f.Var(&empty, "on-empty", "with --warm, while none is ready: "+empty.want())
	f.DurationVar(&wait, "wait", 0, "with --on-empty wait, at most this `duration`")
	f.StringVar(&warm.ClientSpecHash, "spec-hash", "", "with --warm, refuse a slot of another spec than this `hash`")
	f.DurationVar(&within, "bind-within", 0, "give it back unless it is bound within this `duration`")
	f.StringArrayVar(&pairs, "label", nil, "`key=value` to keep with the lease; may be repeated")
	c.complete(cmd, "pool", c.pools)
	c.complete(cmd, "family", family.complete)
	c.complete(cmd, "warm", policy.complete)
	c.complete(cmd, "on-empty", empty.complete)
	return cmd
}

// leased is an address with its pool's prefix length, or a delegated prefix.
func leased(l *api.Lease) string {
	return fmt.Sprintf("%s/%d", term.Word(l.Address), cmp.Or(l.PrefixLength, l.PrefixLen))
}

// place is an address, or a delegated prefix as in 10.8.64.16/28.
func place(address string, length int) string {
	if length != 0 {
		return fmt.Sprintf("%s/%d", term.Word(address), length)
	}
	return term.Word(address)
}

func (p *page) drawAllocation(r *api.AllocateReply) {
	for i, l := range r.Leases {
		p.Line("%s is %s for %s", p.Bold(leased(&l)), p.state(l.State), term.Word(l.Sandbox))
		deadline := ""
		if l.BindBy != nil {
			deadline = p.when(*l.BindBy)
		}
		fields := [][2]string{{"lease", term.Word(l.ID)}, {"bind by", deadline}}
		if l.HostInterfaceName != "" {
			fields = append(fields, [2]string{"host interface", term.Word(l.HostInterfaceName)})
		}
		if i < len(r.Networks) {
			fields = append(fields, networkFields(r.Networks[i])...)
		}
		if r.Slot != nil && i == len(r.Leases)-1 {
			stale := ""
			if r.Slot.Stale {
				stale = "yes: its pool wants another spec"
			}
			fields = append(fields, [2]string{"warm slot", term.Word(r.Slot.Slot)}, [2]string{"netns", term.Word(r.Slot.Netns)}, [2]string{"stale", stale})
		}
		p.Fields(fields...)
	}
	if r.Existing {
		p.Line("It was there before: the same sandbox asked again.")
	}
	if r.EarlyReuse {
		p.Line("%s", p.Warn("The pool is exhausted: the cooldown of this address was cut short."))
	}
	for _, addr := range r.Unprobed {
		p.Line("%s", p.Warn(term.Word(addr)+" was given before the wire had time to answer a probe."))
	}
	evidence := func(all []api.Skipped, sentence string) {
		for _, s := range all {
			p.Line("%s", p.Warn(fmt.Sprintf(sentence, term.Word(s.Address))))
			for _, sighting := range s.Evidence {
				p.Line("    %s: %s", term.Word(sighting.Witness), p.seen(sighting))
			}
		}
	}
	evidence(r.Claimed, "Another claims %s, which is this sandbox's by the book:")
	evidence(r.Skipped, "Passed over %s, it is in use:")
}

func networkFields(n api.Network) [][2]string {
	var routes, dns []string
	for _, r := range n.Routes {
		routes = append(routes, term.Word(r.Destination)+" via "+term.Word(r.Via))
	}
	for _, server := range n.DNS {
		dns = append(dns, term.Word(server))
	}
	gateway := ""
	if n.Gateway != "" {
		gateway = term.Word(n.Gateway)
	}
	return [][2]string{
		{"bridge", fmt.Sprintf("%s, mtu %d", term.Word(n.Bridge), n.MTU)},
		{"gateway", gateway},
		{"routes", strings.Join(routes, ", ")},
		{"dns", strings.Join(dns, ", ")},
	}
}
