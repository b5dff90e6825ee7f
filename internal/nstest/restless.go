package nstest

import (
	"context"
	"fmt"
	"sync"

	"github.com/vishvananda/netlink"
)

// Fill gives the namespace of a [Port] many addresses, 10.8.100.1/32 and on, 250 of
// each third byte: on eth0, or on so many links that it makes. To add 12 000 takes
// the kernel six seconds.
func (n *NS) Fill(addresses, links int) {
	n.t.Helper()
	for i := range links {
		attrs := netlink.NewLinkAttrs()
		attrs.Name = fmt.Sprint("br", i)
		if err := n.nl.LinkAdd(&netlink.Bridge{LinkAttrs: attrs}); err != nil {
			n.t.Fatalf("make %s in %s: %v", attrs.Name, n.name, err)
		}
	}
	for i := range addresses {
		link := "eth0"
		if links > 0 {
			link = fmt.Sprint("br", i%links)
		}
		n.AddAddr(link, fmt.Sprintf("10.8.%d.%d/32", 100+i/250, 1+i%250))
	}
}

// Restless has two loops add addresses to eth0 and remove them, as fast as the kernel
// lets them, until stop or the end of the test: 10.8.246.1 to .4, and 10.8.247.1
// to .4.
func (n *NS) Restless() (stop func()) {
	n.t.Helper()
	eth0, err := n.nl.LinkByName("eth0")
	if err != nil {
		n.t.Fatalf("look up eth0 in %s: %v", n.name, err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var loops sync.WaitGroup
	for i := range 2 {
		var h *netlink.Handle
		n.Do(func() { h, err = netlink.NewHandle() })
		if err != nil {
			n.t.Fatalf("open netlink in %s: %v", n.name, err)
		}
		loops.Go(func() {
			defer h.Close()
			for at := 0; ctx.Err() == nil; at++ {
				a, err := netlink.ParseAddr(fmt.Sprintf("10.8.%d.%d/32", 246+i, 1+at%4))
				if err == nil {
					err = h.AddrAdd(eth0, a)
				}
				if err == nil {
					err = h.AddrDel(eth0, a)
				}
				if err != nil {
					n.t.Errorf("add and remove an address in %s: %v", n.name, err)
					return
				}
			}
		})
	}
	stop = sync.OnceFunc(func() {
		cancel()
		loops.Wait()
	})
	n.t.Cleanup(stop)
	return stop
}
