package storm_test

import (
	"bytes"
	"math/rand/v2"
	"net/netip"
	"os"

	"github.com/google/nftables"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/client"
)

// A cooled is a lease whose address has begun to cool, and whether the rules that were read
// after that had it still.
type cooled struct {
	at    moment
	addr  netip.Addr
	lease string
	rule  bool
}

// watchCooling follows the stream, and reads the rules at once when an address begins to cool:
// they ended before that was recorded.
func (w *world) watchCooling(*rand.Rand) {
	ns, err := os.Open(w.ns.Path())
	if err != nil {
		w.t.Errorf("open the namespace: %v", err)
		return
	}
	defer ns.Close()
	conn, err := nftables.New(nftables.WithNetNSFd(int(ns.Fd())), nftables.AsLasting())
	if err != nil {
		w.t.Errorf("open netfilter: %v", err)
		return
	}
	defer conn.CloseLasting()
	set := &nftables.Set{Table: &nftables.Table{Name: "ipamd", Family: nftables.TableFamilyBridge}, Name: "ipv4"}
	for u := range w.client.Watch(w.ctx, client.WatchFilter{Kinds: []api.Kind{api.KindLease}}) {
		if closed(w.end) {
			return
		}
		if u.Event == nil || u.Event.Change == nil || u.Event.Change.To != api.Cooling || u.Event.Change.From != api.Releasing {
			continue
		}
		c := u.Event.Change
		one := cooled{at: w.rec.now(), addr: netip.MustParseAddr(c.Address), lease: c.LeaseID}
		elements, err := conn.GetSetElements(set)
		if err != nil { // they were flushed, or a boot is under way
			continue
		}
		for _, e := range elements {
			one.rule = one.rule || bytes.HasSuffix(e.Key, one.addr.AsSlice())
		}
		if one.rule { // its own sandbox may have the address again
			l, err := w.client.Lease(w.ctx, c.LeaseID)
			if err != nil || l.Lease.State != api.Cooling {
				continue
			}
		}
		w.rec.add(func(h *history) { h.cooled = append(h.cooled, one) })
		w.rec.counted("rules read as an address begins to cool")
	}
}
