package main

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/moby/moby/v2/daemon/libnetwork/ipamapi"
	"github.com/moby/moby/v2/daemon/libnetwork/ipams/defaultipam"
)

// A docker is the allocator of Docker's networks: a bitmap in memory that
// Docker fills anew when it starts. It is there to tell what remembering
// costs, not to be compared with.
type docker struct {
	allocator *defaultipam.Allocator
	pool      string
}

func openDocker(ctx context.Context, _ string, prefix netip.Prefix, taken int) (store, error) {
	allocator, err := defaultipam.NewAllocator(nil, nil)
	if err != nil {
		return nil, err
	}
	space, _, err := allocator.GetDefaultAddressSpaces()
	if err != nil {
		return nil, err
	}
	pool, err := allocator.RequestPool(ipamapi.PoolRequest{AddressSpace: space, Pool: prefix.String()})
	if err != nil {
		return nil, err
	}
	d := &docker{allocator: allocator, pool: pool.PoolID}
	for range taken + 1 { // and the gateway
		if _, err := d.allocate(ctx, ""); err != nil {
			return nil, err
		}
	}
	return d, nil
}

func (d *docker) allocate(context.Context, string) (netip.Addr, error) {
	got, _, err := d.allocator.RequestAddress(d.pool, nil, nil)
	if err != nil {
		return netip.Addr{}, err
	}
	addr, ok := netip.AddrFromSlice(got.IP)
	if !ok {
		return netip.Addr{}, fmt.Errorf("docker gave %v", got.IP)
	}
	return addr.Unmap(), nil
}

func (d *docker) release(_ context.Context, _ string, addr netip.Addr) error {
	return d.allocator.ReleaseAddress(d.pool, addr.AsSlice())
}

func (d *docker) close() error { return nil }
