package docker

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/client"
	"github.com/ipamd/ipamd/internal/ranges"
)

// Label marks the leases that were given through the driver; its value is the id of the pool.
const Label = "docker-pool"

// bindWithin is how long a lease waits for its bind, which follows at once: what a driver
// that is killed in between leaves is gone after it.
const bindWithin api.Duration = "1m"

// giveBackWithin bounds the release of an address that could not be bound, whose call may be over.
const giveBackWithin = 2 * time.Second

// requestAddress gives the address of a container's interface, or says a pool's gateway.
func (d *Driver) requestAddress(ctx context.Context, ask addressRequest) (addressReply, error) {
	p, err := d.pool(ctx, ask.PoolID)
	if err != nil {
		return addressReply{}, err
	}
	prefix, err := netip.ParsePrefix(p.Prefix)
	if err != nil {
		return addressReply{}, err
	}
	var wish netip.Addr
	if ask.Address != "" {
		if wish, err = parse(ask.Address); err != nil {
			return addressReply{}, err
		}
	}
	reply := func(a string) addressReply {
		return addressReply{Address: fmt.Sprintf("%s/%d", a, prefix.Bits()), Data: map[string]string{}}
	}
	mac := ask.Options[optionMAC]
	switch {
	case ask.Options[optionKind] == kindGateway:
		switch {
		case p.Gateway == "":
			return addressReply{}, noGateway(p)
		case wish.IsValid() && wish.String() != p.Gateway:
			return addressReply{}, fmt.Errorf("--gateway %s: that of pool %s is %s", wish, p.Name, p.Gateway)
		}
		return reply(p.Gateway), nil
	case mac == "" && wish.IsValid():
		return d.auxiliary(p, wish, reply)
	case mac == "":
		return addressReply{}, fmt.Errorf("the request has no %s: Docker 1.11 and later send it", optionMAC)
	}
	if hw, err := net.ParseMAC(mac); err != nil || len(hw) != 6 {
		return addressReply{}, fmt.Errorf("%s: %.80q is no MAC", optionMAC, mac)
	}
	if err := d.checkBridge(p); err != nil {
		return addressReply{}, err
	}
	l, err := d.give(ctx, p, ask.PoolID, mac, wish)
	if err != nil {
		return addressReply{}, err
	}
	return reply(l.Address), nil
}

func noGateway(p *api.Pool) error {
	return fmt.Errorf("pool %s has no gateway, and a network of Docker wants one: ipamctl pool apply %s --gateway ADDRESS", p.Name, p.Name)
}

// checkBridge refuses a container whose network is, or may be, on another bridge than its pool.
// There ipamd does not see its port, and cannot tell whether it is there. A network's bridge has the gateway, so
// the pool's has to have it, and no other link.
func (d *Driver) checkBridge(p *api.Pool) error {
	if p.Gateway == "" {
		return noGateway(p)
	}
	gateway, err := netip.ParseAddr(p.Gateway)
	if err != nil {
		return err
	}
	on, err := d.Links(gateway)
	if err != nil {
		return fmt.Errorf("find the link that has the gateway %s: %w", gateway, err)
	}
	others := slices.DeleteFunc(slices.Clone(on), func(link string) bool { return link == p.Bridge })
	there, next := cmp.Or(strings.Join(others, " and "), "no link of the host"), ""
	switch {
	case len(on) == 1 && len(others) == 0:
		return nil
	case len(on) > len(others):
		there, next = there+" too", ", and remove what is on "+there
	}
	return fmt.Errorf("the gateway %s is on %s, and pool %s is on %s: make the network with -o com.docker.network.bridge.name=%s%s", gateway, there, p.Name, p.Bridge, p.Bridge, next)
}

// auxiliary answers for an address that a network keeps from its containers, which is the
// pool's to exclude.
func (d *Driver) auxiliary(p *api.Pool, a netip.Addr, reply func(string) addressReply) (addressReply, error) {
	if a.String() == p.Gateway || slices.ContainsFunc(p.Exclude, func(r string) bool { return covers(r, a) }) {
		return reply(a.String()), nil
	}
	return addressReply{}, fmt.Errorf("--aux-address %s: pool %s would give it: ipamctl pool apply %s --exclude %s", a, p.Name, p.Name, a)
}

// covers reports whether an address is in what a pool excludes, as the socket spells it.
func covers(text string, a netip.Addr) bool {
	r, err := ranges.Parse(text)
	return err == nil && r.Contains(a)
}

// give leases an address to an interface. Libnetwork names no endpoint, and two containers
// must never have one address, so each request is an owner of its own: what the answer that
// was lost has left is never seen, and a person's to release. A wished address is owned by
// its own name instead, because a container that starts again with a fixed one comes with a
// new MAC and wants it back at once; there a lease that stands already is refused.
func (d *Driver) give(ctx context.Context, p *api.Pool, id, mac string, wish netip.Addr) (*api.Lease, error) {
	ask := api.AllocateRequest{Sandbox: "docker:" + mac, UID: "docker:" + mac + "#" + rand.Text(), Pool: p.Name, Family: p.Family,
		BindWithin: bindWithin, Labels: map[string]string{Label: id}}
	if wish.IsValid() {
		ask.Sandbox, ask.UID, ask.Address = "docker:"+wish.String(), "", wish.String()
	}
	r, err := call(ctx, func(ctx context.Context) (*api.AllocateReply, error) { return d.Client.Allocate(ctx, ask) })
	if err != nil {
		return nil, err
	}
	l := &r.Leases[0]
	if r.Existing && wish.IsValid() {
		return nil, fmt.Errorf("--ip %s: a container has it (lease %s is %s): remove that one, or wait until its removal is confirmed: ipamctl whois %s", wish, l.ID, l.State, wish)
	}
	_, err = call(ctx, func(ctx context.Context) (*api.LeaseReply, error) {
		return d.Client.Bind(ctx, l.ID, api.BindRequest{MAC: mac})
	})
	if err != nil {
		// Where the bind stands after all, the lease would be kept for a container that does not come.
		after, cancel := context.WithTimeout(context.WithoutCancel(ctx), giveBackWithin)
		defer cancel()
		_, late := call(after, func(ctx context.Context) (*api.LeaseReply, error) {
			return d.Client.Release(ctx, l.ID, api.ReleaseRequest{})
		})
		if late != nil {
			late = fmt.Errorf("lease %s of %s stays: ipamctl release %s: %w", l.ID, l.Address, l.ID, late)
		}
		return nil, errors.Join(err, late)
	}
	return l, nil
}

// releaseAddress releases the lease that was given through the driver, and no other. That
// there is none is a success: Docker releases again what it released before a crash.
func (d *Driver) releaseAddress(ctx context.Context, ask addressRelease) (nothing, error) {
	a, err := parse(ask.Address)
	if err != nil {
		return nothing{}, err
	}
	is, err := call(ctx, func(ctx context.Context) (*api.WhoisReply, error) { return d.Client.Whois(ctx, a.String()) })
	switch {
	case errors.Is(err, client.ErrNotFound), errors.Is(err, client.ErrNotInPool):
		return nothing{}, nil
	case err != nil:
		return nothing{}, err
	case is.Lease == nil || is.Lease.Labels[Label] == "":
		return nothing{}, nil // the gateway, or another client's
	case is.Lease.Labels[Label] != ask.PoolID:
		return nothing{}, nil // of another network: this one's has ended
	}
	_, err = call(ctx, func(ctx context.Context) (*api.LeaseReply, error) {
		return d.Client.Release(ctx, is.Lease.ID, api.ReleaseRequest{})
	})
	if errors.Is(err, client.ErrNotFound) || errors.Is(err, client.ErrLeaseGone) {
		err = nil // it has ended meanwhile
	}
	return nothing{}, err
}

// parse reads an address, with or without a prefix length.
func parse(text string) (netip.Addr, error) {
	a, err := ranges.Bare(text)
	if err != nil {
		return a, fmt.Errorf("field Address: %w", err)
	}
	return a, nil
}
