package storm_test

import (
	"math/rand/v2"
	"net/netip"
	"time"

	"github.com/ipamd/ipamd/ipam"
)

// A stranger adds addresses of the pool by hand, one at a time, whether a lease has them or not.
type stranger struct {
	*world
	r *rand.Rand
}

func (f *stranger) act() {
	defer f.left.Add(1)
	for !closed(f.calm) && f.ctx.Err() == nil {
		addr := anyHost(f.r)
		p, err := f.plug(addr)
		if err != nil {
			f.rec.strange("a stranger: %v", err)
			return
		}
		f.rec.counted("address added by hand")
		l := f.rec.lives(&life{from: f.rec.now(), to: never, addr: addr, netns: p.path})
		f.rest(f.r, 200*time.Millisecond, 2*time.Second)
		f.rec.dies(l)
		if err := p.dropSpace(); err != nil {
			f.rec.strange("a stranger: %v", err)
		}
		f.rest(f.r, time.Millisecond, time.Second)
	}
}

// anyHost is any address of the pool that can be given.
func anyHost(r *rand.Rand) netip.Addr {
	base := ipam.FirstHost(poolPrefix).As4() // the gateway
	n := 1 + r.IntN(1<<(32-poolPrefix.Bits())-3)
	low := int(base[2])<<8 + int(base[3]) + n
	return netip.AddrFrom4([4]byte{base[0], base[1], byte(low >> 8), byte(low)})
}
