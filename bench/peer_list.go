package main

import (
	"fmt"
	"net/netip"
)

// A contestant is a peer and what is promised beside it.
type contestant struct {
	name     string // as bench/peers knows it
	title    string
	program  string // beside bench/peers' own, or that
	module   string // whose version is told
	durable  string // what of an answer survives a loss of power
	remote   bool   // the yardstick R is added to it: it is asked in its own process, and ipamd over a socket
	slower   [fillings]float64
	fewer    float64        // allocations a second of many callers
	room     int            // how many addresses an empty store has, where that is less than the pool
	unfilled map[int]string // which fillings are left out, and why
}

// The fillings of a store before it is asked.
const (
	fillNone = iota
	fillSmall
	fillSome
	fillMost
	fillings
)

// contestants lists the peers. A ratio of 0 promises nothing.
func contestants() []contestant {
	return []contestant{
		{name: "host-local", title: "CNI host-local, a process a call", program: "host-local", module: "github.com/containernetworking/plugins",
			durable: "no sync", slower: [fillings]float64{fillNone: 6, fillMost: 1000}, fewer: 50},
		{name: "go-ipam", title: "go-ipam, file store", program: "peers", module: "github.com/metal-stack/go-ipam", durable: "no sync"},
		{name: "aws", title: "AWS VPC CNI datastore, checkpoint", program: "peers", module: "github.com/aws/amazon-vpc-cni-k8s",
			durable: "file synced, folder not", remote: true, slower: [fillings]float64{fillNone: 1, fillSome: 10},
			room: 4000, unfilled: map[int]string{fillMost: "beyond its design"}},
		{name: "predecessor", title: "table scan in SQLite, two queries a candidate", program: "peers", module: "modernc.org/sqlite",
			durable: "WAL, no sync a commit", slower: [fillings]float64{fillMost: 1000}},
		{name: "docker", title: "Docker's defaultipam", program: "peers", module: "github.com/moby/moby/v2",
			durable: "nothing: memory, and no API; not beaten"},
	}
}

// A filling is a pool and how much of it is taken.
type filling struct {
	name   string
	prefix netip.Prefix
	taken  int
}

func (b *bench) fillings() [fillings]filling {
	large, small := netip.MustParsePrefix(poolPrefix), netip.MustParsePrefix("10.9.0.0/24")
	some, most := b.leases/6, b.leases
	return [fillings]filling{
		fillNone:  {"0 taken", large, 0},
		fillSmall: {"200 of a /24", small, 200},
		fillSome:  {fmt.Sprintf("%d of a /16", some), large, some},
		fillMost:  {fmt.Sprintf("%d of a /16", most), large, most},
	}
}
