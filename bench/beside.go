package main

import (
	"fmt"
	"net/netip"
	"os"
	"sync/atomic"

	"github.com/ipamd/ipamd/bench/peers"
)

// besidePeers measures what others take for the same work: a few calls of each by turns
// with ipamd's, and many callers of host-local and of ipamd, which keep what they get.
func besidePeers(r *run) func() []ratio {
	prefix := netip.MustParsePrefix(largePool)
	some, most := r.leases/6, r.leases
	folder := func() string { return must(os.MkdirTemp(r.dir, "peer-")) }
	ours := func(s setup, taken int) call {
		s.ports = r.ports
		d := r.start(s)
		d.fill(taken)
		c := d.caller().call()
		byTurns(turn, c) // warm
		return c
	}
	empty, filled, full := ours(setup{}, 0), ours(setup{}, some), ours(setup{book: r.full()}, 0)
	p := func(s peers.Store, taken int) call { return peerCall(s, prefix, taken) }
	hostLocal, hostLocalFull := p(peers.HostLocal(r, r.plugin, folder(), prefix, 0), 0), p(peers.HostLocal(r, r.plugin, folder(), prefix, most), most)
	aws, awsFilled := p(peers.AWS(r, folder(), prefix, 0), 0), p(peers.AWS(r, folder(), prefix, some), some)
	scan, docker := p(peers.Predecessor(r, folder(), prefix, most), most), p(peers.Docker(r, prefix, 0), 0)
	many, theirs := r.start(setup{ports: r.ports}), peers.HostLocal(r, r.plugin, folder(), prefix, 0)
	var ourCrowd, theirCrowd []func() error
	for range r.callers {
		ourCrowd = append(ourCrowd, many.caller().allocate)
		theirCrowd = append(theirCrowd, peerCall(theirs, prefix, 0).do)
	}
	return func() []ratio {
		t := byTurns(4*turn, r.yardR(), empty, hostLocal, aws, docker)
		echo, free := t[0].do.p50(), t[1].do.p50()
		u := byTurns(turn, filled, awsFilled)
		v := byTurns(2, hostLocalFull, scan) // of seconds each
		at60k := byTurns(2*turn, full)[0].do.p50()
		_, rate := crowd(r.crowd/4, ourCrowd...)
		_, theirRate := crowd(r.crowd/4, theirCrowd...)
		return []ratio{
			took(t[2].do.p50(), free), took(v[0].do.p50(), at60k), rates(rate, theirRate), took(v[1].do.p50(), at60k),
			took(t[3].do.p50()+echo, free), took(u[1].do.p50()+echo, u[0].do.p50()), took(t[4].do.p50(), free),
		}
	}
}

var peerCalls atomic.Int64 // names the sandboxes

// peerCall is an allocation of a peer's, and what undoes it. An address that is not the
// peer's to give is an error: nothing is measured of a peer that was set up wrong.
func peerCall(s peers.Store, prefix netip.Prefix, taken int) call {
	var sandbox string
	var addr netip.Addr
	first := peers.First(prefix).As4()
	return call{
		do: func() (err error) {
			sandbox = fmt.Sprint("sandbox-", peerCalls.Add(1))
			if addr, err = s.Allocate(sandbox); err != nil {
				return err
			}
			a := addr.As4()
			index := int(a[2])<<8 + int(a[3]) - int(first[2])<<8 - int(first[3])
			if !prefix.Contains(addr) || index >= 0 && index < taken {
				err = fmt.Errorf("%s was given, of %s with %d taken", addr, prefix, taken)
			}
			return err
		},
		undo: func() error { return s.Undo(sandbox, addr) },
	}
}
