package doctor

import (
	"context"
	"errors"
	"fmt"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/config"
	"github.com/ipamd/ipamd/enforce"
	"github.com/ipamd/ipamd/netdb"
)

// ShowRules is what nftables holds the ports to; of one lease, where it is named, it is its
// ports alone, and nothing is compared. A nil keeper is one that keeps none.
func ShowRules(ctx context.Context, keeper *enforce.Keeper, book *netdb.Book, configured config.Enforce, lease string) (*api.RulesReply, error) {
	out := &api.RulesReply{Mode: configured.Mode, Ports: []api.PortRules{}, Epoch: book.Epoch(), Revision: book.Rev()}
	if keeper == nil {
		return out, nil
	}
	v, err := keeper.View(ctx, lease == "")
	if err != nil && !errors.Is(err, enforce.ErrRestless) {
		return nil, fmt.Errorf("read the rules of nftables: %w", err)
	}
	out.Unleased, out.Table, out.Compared = configured.Unleased, enforce.ID(), lease == "" && err == nil
	out.Held, out.MadeFrom, out.Elements, out.Foreign, out.Repairs = v.Held, v.Mark, v.Elements, v.Foreign, v.Repairs
	if v.Err != nil {
		out.Why, out.Since = oneLine(v.Err), &v.Since
	}
	names := make(map[int]string)
	for _, port := range v.Ports {
		names[port.Index] = port.Name
		one := api.PortRules{Port: port.Name, Index: port.Index, Bridge: port.Bridge, Trusted: port.Trusted, Allowed: []api.Allowed{}, Refused: refused(port.Refused)}
		asked := lease == ""
		for _, g := range port.Grants {
			one.Allowed = append(one.Allowed, allowed(book, g))
			asked = asked || g.Lease == lease
		}
		if asked {
			out.Ports = append(out.Ports, one)
		}
	}
	for _, g := range v.Portless {
		if lease == "" || g.Lease == lease {
			out.Kept = append(out.Kept, allowed(book, g))
		}
	}
	if lease != "" {
		return out, nil
	}
	out.Gone = refused(v.Gone)
	for _, by := range v.Differences {
		if out.Truncated = len(out.Differences) == api.MostRuleDifferences; out.Truncated {
			break
		}
		out.Differences = append(out.Differences, api.RuleDifference{Missing: by.Missing, Element: by.Element, What: by.What, Port: names[by.Port], LeaseID: by.Lease})
	}
	return out, nil
}

func allowed(book *netdb.Book, g enforce.Grant) api.Allowed {
	a := api.Allowed{Address: g.Addr.Addr().String(), MAC: g.MAC, LeaseID: g.Lease}
	if !g.Addr.IsSingleIP() {
		a.Address = g.Addr.String()
	}
	if l, err := book.Lease(g.Lease); err == nil {
		a.Sandbox = l.Sandbox
	}
	return a
}

func refused(counts []enforce.Refusal) (out []api.Refused) {
	for _, r := range counts {
		out = append(out, api.Refused{Reason: string(r.Reason), Packets: r.Packets, Bytes: r.Bytes})
	}
	return out
}
