package docker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/client"
)

// Options of a network's IPAM: docker network create --ipam-opt.
const (
	optPool   = "pool"   // the name of a pool that there is, or that is to be made
	optBridge = "bridge" // of a pool that is to be made
)

// MadeLabel marks the pools that were made for a network, which go with it.
const (
	MadeLabel = "made-by"
	MadeBy    = "docker"
)

// requestPool finds the pool of a network, or makes it. Libnetwork asks once, when the
// network is made.
func (d *Driver) requestPool(ctx context.Context, ask poolRequest) (poolReply, error) {
	want, err := wanted(ask)
	if err != nil {
		return poolReply{}, err
	}
	all, err := call(ctx, d.Client.Pools)
	if err != nil {
		return poolReply{}, err
	}
	p, err := want.among(all.Pools)
	if err != nil {
		return poolReply{}, err
	}
	made := p == nil
	if made {
		if p, err = d.makePool(ctx, want); err != nil {
			return poolReply{}, err
		}
	}
	if p.State == api.PoolDraining {
		return poolReply{}, fmt.Errorf("pool %s (%s) drains and gives nothing: ipamctl pool drain %s --undo", p.Name, p.Prefix, p.Name)
	}
	if !made && p.Labels[MadeLabel] == MadeBy {
		if err := d.shared(ctx, p); err != nil {
			return poolReply{}, err
		}
	}
	if !want.subnet.IsValid() {
		if err := d.checkRoutes(p); err != nil {
			return poolReply{}, err
		}
	}
	return poolReply{PoolID: idOf(p), Pool: p.Prefix, Data: map[string]string{}}, nil
}

// A poolWish is a request for a pool that makes sense.
type poolWish struct {
	name   string
	bridge string
	subnet netip.Prefix // invalid where none is named
	v6     bool
}

func wanted(ask poolRequest) (w poolWish, err error) {
	w.v6 = ask.V6
	if ask.AddressSpace != "" && ask.AddressSpace != addressSpace {
		return w, fmt.Errorf("AddressSpace %.80q is not this driver's, which is %q", ask.AddressSpace, addressSpace)
	}
	if ask.SubPool != "" {
		return w, fmt.Errorf("--ip-range %.80s: a pool gives all that it does not exclude; exclude the rest of it: ipamctl pool apply POOL --exclude FROM-TO", ask.SubPool)
	}
	for _, name := range slices.Sorted(maps.Keys(ask.Options)) {
		value := ask.Options[name]
		switch name {
		case optPool:
			w.name = value
		case optBridge:
			w.bridge = value
		default:
			return w, fmt.Errorf("--ipam-opt %.80s: there is no such option; there are %s and %s", name, optPool, optBridge)
		}
		if value == "" {
			return w, fmt.Errorf("--ipam-opt %s is empty", name)
		}
	}
	if ask.Pool != "" {
		if w.subnet, err = netip.ParsePrefix(ask.Pool); err != nil {
			return w, fmt.Errorf("--subnet %.80q is no prefix, like 10.8.64.0/24", ask.Pool)
		}
		if w.subnet != w.subnet.Masked() {
			return w, fmt.Errorf("--subnet %s has bits beyond its length: write %s", w.subnet, w.subnet.Masked())
		}
		w.v6 = w.subnet.Addr().Is6()
	}
	if w.name == "" && !w.subnet.IsValid() {
		return w, fmt.Errorf("neither --subnet nor --ipam-opt %s=NAME says which pool the network has", optPool)
	}
	return w, nil
}

// among finds the pool that is meant, nil where there is none yet.
func (w poolWish) among(pools []api.Pool) (*api.Pool, error) {
	family := api.V4
	if w.v6 {
		family = api.V6
	}
	i := slices.IndexFunc(pools, func(p api.Pool) bool {
		if w.name != "" {
			return p.Name == w.name && p.Family == family
		}
		return p.Prefix == w.subnet.String()
	})
	switch {
	case i < 0 && !w.subnet.IsValid():
		var names []string
		for _, p := range pools {
			if p.Family == family {
				names = append(names, p.Name)
			}
		}
		return nil, fmt.Errorf("--ipam-opt %s=%.80s: there is no such %s pool (there are: %s); with --subnet it is made", optPool, w.name, family, cmp.Or(strings.Join(names, ", "), "none"))
	case i < 0:
		return nil, nil
	}
	p := &pools[i]
	if w.subnet.IsValid() && p.Prefix != w.subnet.String() {
		return nil, fmt.Errorf("--subnet %s: pool %s has %s: name that one, or another pool", w.subnet, p.Name, p.Prefix)
	}
	if w.bridge != "" && p.Bridge != w.bridge {
		return nil, fmt.Errorf("--ipam-opt %s=%.80s: pool %s is on bridge %s", optBridge, w.bridge, p.Name, p.Bridge)
	}
	return p, nil
}

// makePool makes the pool that a network wishes for.
func (d *Driver) makePool(ctx context.Context, w poolWish) (*api.Pool, error) {
	name := cmp.Or(w.name, "docker-"+strings.NewReplacer(".", "-", ":", "-", "/", "-").Replace(w.subnet.String()))
	made, err := call(ctx, func(ctx context.Context) (*api.PoolReply, error) {
		return d.Client.ApplyPool(ctx, name, api.PoolRequest{Prefix: w.subnet.String(), Bridge: w.bridge, Labels: map[string]string{MadeLabel: MadeBy}})
	})
	if err != nil {
		return nil, fmt.Errorf("--subnet %s: %w", w.subnet, err)
	}
	return &made.Pool, nil
}

// shared has a pool that was made for one network, and that another asks for, outlive both. A
// release does not say which network it is of: that of a network that Docker refused to make, or
// of one of two that are there, took the pool away under the other's containers.
func (d *Driver) shared(ctx context.Context, p *api.Pool) error {
	ask, err := p.Request()
	if err != nil {
		return err
	}
	delete(ask.Labels, MadeLabel)
	if _, err := call(ctx, func(ctx context.Context) (*api.PoolReply, error) { return d.Client.ApplyPool(ctx, p.Name, ask) }); err != nil {
		return fmt.Errorf("pool %s is another network's: %w", p.Name, err)
	}
	d.Log.Info("a pool that was made for a network of Docker is asked for by another, and stays when they are gone", "pool", p.Name)
	return nil
}

// checkRoutes refuses a pool that Docker would ask for again, and again: without --subnet
// it compares what it is given with the routes of the host, and with its name servers, and
// wants another one while they overlap (2.1 million requests in ten minutes were seen).
func (d *Driver) checkRoutes(p *api.Pool) error {
	prefix, err := netip.ParsePrefix(p.Prefix)
	if err != nil {
		return err
	}
	routes, err := d.Routes()
	if err != nil {
		return fmt.Errorf("read the host's routes: %w; --subnet %s needs none", err, p.Prefix)
	}
	for _, r := range routes {
		if r.Overlaps(prefix) {
			return fmt.Errorf("pool %s (%s) overlaps the host's route to %s, and Docker takes no such pool by itself: say --subnet %s", p.Name, p.Prefix, r, p.Prefix)
		}
	}
	for _, server := range d.NameServers() {
		if prefix.Contains(server) {
			return fmt.Errorf("pool %s (%s) has the host's name server %s in it, and Docker takes no such pool by itself: say --subnet %s", p.Name, p.Prefix, server, p.Prefix)
		}
	}
	return nil
}

// releasePool removes the pool that was made for a network, once its leases have ended.
// Any other pool stays, and so does one that another network or client uses.
func (d *Driver) releasePool(ctx context.Context, ask poolRelease) (nothing, error) {
	p, err := d.pool(ctx, ask.PoolID)
	if errors.Is(err, errNoPool) {
		return nothing{}, nil // asked twice, or removed by hand
	}
	if err != nil || p.Labels[MadeLabel] != MadeBy {
		return nothing{}, err
	}
	for {
		_, err := d.Client.RemovePool(ctx, p.Name, client.Removal{UID: p.UID, Mode: api.RemoveEmpty, Reason: "its Docker network was removed"})
		if err == nil || errors.Is(err, client.ErrNotFound) {
			return nothing{}, nil
		}
		if errors.Is(err, client.ErrPoolNotEmpty) { // the last containers' removals are being confirmed, or others use it
			select {
			case <-time.After(200 * time.Millisecond):
				if deadline, _ := ctx.Deadline(); time.Until(deadline) > Within/2 {
					if now, err := d.pool(ctx, ask.PoolID); err == nil && now.Labels[MadeLabel] != MadeBy {
						return nothing{}, nil // another network has asked for it meanwhile
					}
					continue
				}
			case <-ctx.Done():
			}
			d.Log.Warn("a pool that was made for a network of Docker has leases and stays", "pool", p.Name, "next", "ipamctl pool rm "+p.Name)
			return nothing{}, nil
		}
		return nothing{}, err
	}
}

var errNoPool = errors.New("there is no such pool")

// idOf is what Docker keeps of a pool: its name and the prefix that the network has. A pool
// has another uid in a book that was rebuilt, and a network outlives that.
func idOf(p *api.Pool) string { return p.Name + "/" + p.Prefix }

// pool returns the pool of an id that the driver gave, which may have grown since.
func (d *Driver) pool(ctx context.Context, id string) (*api.Pool, error) {
	name, prefix, _ := strings.Cut(id, "/")
	was, err := netip.ParsePrefix(prefix)
	if name == "" || err != nil {
		return nil, fmt.Errorf("PoolID %.80q: %w of this driver", id, errNoPool)
	}
	all, err := call(ctx, d.Client.Pools)
	if err != nil {
		return nil, err
	}
	for i, p := range all.Pools {
		now, err := netip.ParsePrefix(p.Prefix)
		if err == nil && p.Name == name && now.Overlaps(was) && now.Bits() <= was.Bits() {
			return &all.Pools[i], nil
		}
	}
	return nil, fmt.Errorf("PoolID %q: %w: it was removed or moved; remove the network and make it again", id, errNoPool)
}
