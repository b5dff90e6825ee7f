package peers

import (
	"net/netip"
	"testing"

	"github.com/moby/moby/v2/daemon/libnetwork/ipamapi"
	"github.com/moby/moby/v2/daemon/libnetwork/ipams/defaultipam"
)

// A docker is the allocator of Docker's networks: a bitmap in memory that is
// gone with the process, called as a function. It is there for scale: nothing that
// remembers can beat it.
type docker struct {
	allocator *defaultipam.Allocator
	pool      string
}

// Docker fills an allocator.
func Docker(t testing.TB, prefix netip.Prefix, taken int) Store {
	d := new(docker)
	var err error
	if d.allocator, err = defaultipam.NewAllocator(nil, nil); err != nil {
		t.Fatal(err)
	}
	space, _, err := d.allocator.GetDefaultAddressSpaces()
	if err != nil {
		t.Fatal(err)
	}
	pool, err := d.allocator.RequestPool(ipamapi.PoolRequest{AddressSpace: space, Pool: prefix.String()})
	if err != nil {
		t.Fatal(err)
	}
	d.pool = pool.PoolID
	for range taken + 1 { // and the gateway
		if _, err := d.Allocate(""); err != nil {
			t.Fatal(err)
		}
	}
	return d
}

func (d *docker) Allocate(string) (netip.Addr, error) {
	got, _, err := d.allocator.RequestAddress(d.pool, nil, nil)
	if err != nil {
		return netip.Addr{}, err
	}
	addr, _ := netip.AddrFromSlice(got.IP.To4())
	return addr, nil
}

func (d *docker) Undo(_ string, addr netip.Addr) error {
	return d.allocator.ReleaseAddress(d.pool, addr.AsSlice())
}
