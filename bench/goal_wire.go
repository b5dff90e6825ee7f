package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

	"github.com/ipamd/ipamd/bridge"
	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/netdb"
)

const (
	portLimit = 80 * time.Microsecond // of a reading, a port
	newsLimit = 5 * time.Millisecond
	// silentOne of so many guests answers no question on the wire.
	silentOne = 4
)

// guests are ports of a bridge of this process's own with an address behind
// each, none of which is in any book; some say nothing on the wire.
type guests struct {
	space netns.NsHandle
	wired *ports
	addrs []netip.Addr
}

func openGuests(ctx context.Context, n int) (*guests, error) {
	space, err := newSpace()
	if err != nil {
		return nil, err
	}
	g := &guests{space: space, wired: new(ports)}
	if err := g.settle(ctx, n); err != nil {
		return nil, errors.Join(err, g.close())
	}
	return g, nil
}

// settle makes the bridge and so many ports of it.
func (g *guests) settle(ctx context.Context, n int) error {
	br, _, err := g.bridge() // makes the bridge
	if err != nil {
		return err
	}
	if err := errors.Join(br.Refresh(ctx), br.Close(), ctx.Err()); err != nil {
		return err
	}
	addr := netip.MustParsePrefix(poolPrefix).Addr().Next()
	for range n {
		addr = addr.Next()
		g.addrs = append(g.addrs, addr)
	}
	if _, err := g.wired.plug(g.space, g.addrs...); err != nil {
		return err
	}
	for i := 0; i < n; i += silentOne {
		if err := within(g.wired.spaces[i], (*netlink.Handle).LinkSetARPOff); err != nil {
			return err
		}
	}
	return nil
}

func (g *guests) close() error {
	g.wired.close()
	return g.space.Close()
}

// bridge opens the bridge as the daemon does, knowing nothing yet.
func (g *guests) bridge() (*bridge.Bridge, *census.Board, error) {
	board := census.NewBoard(census.Netns, census.Host, census.Neighbour)
	prefix := netip.MustParsePrefix(poolPrefix)
	br, err := openBridge(g.space, board, &netdb.Pool{PoolSpec: netdb.PoolSpec{Prefix: prefix, Gateway: prefix.Addr().Next()}})
	return br, board, err
}

// within does something to the far end of a port.
func within(space netns.NsHandle, do func(*netlink.Handle, netlink.Link) error) error {
	nl, err := netlink.NewHandleAt(space)
	if err != nil {
		return err
	}
	defer nl.Close()
	eth0, err := nl.LinkByName("eth0")
	if err != nil {
		return err
	}
	return do(nl, eth0)
}

// inventory is goal 9: what a whole reading of a bridge takes, ports, namespaces
// and all addresses in them, and how much of what is behind the ports it finds.
// The first reading looks up each link with an address too, for its MAC, which
// later ones remember.
func inventory(ctx context.Context, b *bench) (rows []row, err error) {
	g, err := openGuests(ctx, b.sandboxes)
	if err != nil {
		return nil, err
	}
	defer func() { err = first(err, g.close()) }()
	warm := row{goal: 9, what: fmt.Sprintf("a reading of %d ports, a port / 80 µs", b.sandboxes), most: 1}
	busy := row{goal: 9, what: "the same, processor time / 80 µs"}
	cold := row{goal: 9, what: "the first reading, with each guest's MAC, a port / 80 µs"}
	all := row{goal: 9, what: "strangers and silent ones that each of them found / all", least: 1, unit: "addresses"}
	least := len(g.addrs)
	err = b.each(ctx, func() (err error) {
		br, board, err := g.bridge()
		if err != nil {
			return err
		}
		defer func() { err = first(err, br.Close()) }()
		for _, r := range []*row{&cold, &warm} {
			var took sample
			worked, err := onProcessor(os.Getpid(), func() error { return took.timed(func() error { return br.Refresh(ctx) }) })
			if err != nil {
				return err
			}
			r.add(took.p50()/time.Duration(len(g.addrs)), portLimit)
			if r == &warm {
				busy.add(worked/time.Duration(len(g.addrs)), portLimit)
			}
			least = min(least, g.found(board))
		}
		return nil
	})
	if err == nil {
		all.round(float64(least), float64(len(g.addrs)))
	}
	return []row{warm, busy, cold, all}, err
}

// found is how many guests the board has behind their ports.
func (g *guests) found(board *census.Board) (n int) {
	for _, addr := range g.addrs {
		for _, s := range board.About(addr).Seen {
			if s.Witness == census.Netns {
				n++
				break
			}
		}
	}
	return n
}

// newAddress is goal 10: how long after it is asked for an address behind a
// port is on the board, by the kernel's news alone, and how long until it is
// off it again. The request itself is in it: it waits for the kernel's lock.
//
// By turns with that, a bare socket listens beside the bridge, which tells
// whose the tail is: the request's, the machine's, which wakes any listener
// late, or the bridge's.
func newAddress(ctx context.Context, b *bench) (rows []row, err error) {
	g, err := openGuests(ctx, b.sandboxes)
	if err != nil {
		return nil, err
	}
	defer func() { err = first(err, g.close()) }()
	br, board, err := g.bridge()
	if err != nil {
		return nil, err
	}
	defer func() { err = first(err, br.Close()) }()
	running, cancel := context.WithCancel(ctx)
	var loop sync.WaitGroup
	loop.Go(func() { _ = br.Run(running) }) // a bridge that broke tells nothing, and the wait below ends
	defer loop.Wait()
	defer cancel()
	if err := br.Refresh(ctx); err != nil {
		return nil, err
	}
	of := fmt.Sprintf(" one of %d ports", b.sandboxes)
	half := row{goal: 10, what: "an address comes behind" + of + ", known, p50 / 5 ms", most: 1}
	tail := row{goal: 10, what: "the same, p99 / 5 ms", most: 1}
	gone := row{goal: 10, what: "an address goes behind" + of + ", known, p50 / 5 ms"}
	asked := row{goal: 10, what: "an address comes, the request alone, p99 / 5 ms"}
	bare := row{goal: 10, what: "a bare socket that listens to the same news, p99 / 5 ms"}
	later := row{goal: 10, what: "what the board is later than that socket, p99 / 5 ms"}
	news := &newcomer{guests: g, board: board}
	err = b.each(ctx, func() error {
		var alone, with arrivals
		for range b.calls / 2 / turn { // each makes its own socket in a namespace
			if err := first(news.come(ctx, turn, nil, &alone), news.heard(ctx, turn, &with)); err != nil {
				return err
			}
		}
		half.add(alone.known.p50(), newsLimit)
		tail.add(alone.known.p99(), newsLimit)
		gone.add(alone.gone.p50(), newsLimit)
		asked.add(with.asked.p99(), newsLimit)
		bare.add(with.heard.p99(), newsLimit)
		later.add(with.later.p99(), newsLimit)
		return nil
	})
	return []row{half, tail, gone, asked, bare, later}, err
}

// A newcomer is an address that comes and goes behind one port after the
// other.
type newcomer struct {
	*guests
	board *census.Board
	turn  int
}

// arrivals are how long it took, since it was asked for.
type arrivals struct {
	asked sample // until the request was answered
	heard sample // until a bare socket heard of it
	known sample // until it was on the board
	later sample // from heard to known; 0 where the board was first
	gone  sample // until it was off the board again
}

// heard lets it come while a bare socket listens.
func (n *newcomer) heard(ctx context.Context, times int, took *arrivals) error {
	s, err := listenNews(n.space)
	if err != nil {
		return err
	}
	return first(n.come(ctx, times, s, took), s.close())
}

// come lets it come and go so many times. s may be nil.
func (n *newcomer) come(ctx context.Context, times int, s *newsSocket, took *arrivals) error {
	addr := netip.MustParsePrefix(portPrefix).Addr().Next()
	ip := &netlink.Addr{IPNet: &net.IPNet{IP: addr.AsSlice(), Mask: net.CIDRMask(32, 32)}}
	for range times {
		n.turn++
		if err := within(n.wired.spaces[n.turn%len(n.wired.spaces)], func(nl *netlink.Handle, eth0 netlink.Link) error {
			heard := s.await(addr)
			began := time.Now()
			err := nl.AddrAdd(eth0, ip)
			took.asked = append(took.asked, time.Since(began))
			if err == nil {
				err = onBoard(ctx, n.board, addr, true)
			}
			known := time.Now()
			took.known = append(took.known, known.Sub(began))
			if s != nil {
				h := <-heard
				err = first(err, h.err)
				took.heard = append(took.heard, h.at.Sub(began))
				took.later = append(took.later, max(0, known.Sub(h.at)))
			}
			return first(err, took.gone.timed(func() error {
				return first(nl.AddrDel(eth0, ip), onBoard(ctx, n.board, addr, false))
			}))
		}); err != nil {
			return err
		}
	}
	return nil
}

// onBoard waits until an address is seen, or is not.
func onBoard(ctx context.Context, board *census.Board, addr netip.Addr, want bool) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		changed := board.Changed()
		if seen := len(board.About(addr).Seen) > 0; seen == want {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("wait until %s is seen (%t): %w", addr, want, ctx.Err())
		}
	}
}
