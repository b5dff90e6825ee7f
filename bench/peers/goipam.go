package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"

	ipam "github.com/metal-stack/go-ipam"
)

// A goIPAM is metal-stack's library with its file store, which writes the
// whole file with each change and syncs nothing.
type goIPAM struct {
	ipam   ipam.Ipamer
	prefix string
}

// openGoIPAM has the library write its file and adds the taken addresses to
// it; the library reads a file anew that somebody changed.
func openGoIPAM(ctx context.Context, dir string, prefix netip.Prefix, taken int) (store, error) {
	path := filepath.Join(dir, "ipam.json")
	g := &goIPAM{ipam: ipam.NewWithStorage(ipam.NewLocalFile(ctx, path)), prefix: prefix.String()}
	if _, err := g.ipam.NewPrefix(ctx, g.prefix); err != nil {
		return nil, err
	}
	if _, err := g.ipam.AcquireSpecificIP(ctx, g.prefix, gatewayOf(prefix).String()); err != nil {
		return nil, err
	}
	written, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var namespaces map[string]map[string]map[string]any
	if err := json.Unmarshal(written, &namespaces); err != nil {
		return nil, err
	}
	for _, prefixes := range namespaces {
		ips, ok := prefixes[g.prefix]["IPs"].(map[string]any)
		if !ok {
			return nil, fmt.Errorf("%s has no addresses: %s", path, written)
		}
		for _, addr := range takenOf(prefix, taken) {
			ips[addr.String()] = true
		}
	}
	if written, err = json.MarshalIndent(namespaces, "", "  "); err != nil {
		return nil, err
	}
	return g, os.WriteFile(path, written, 0o600)
}

func (g *goIPAM) allocate(ctx context.Context, _ string) (netip.Addr, error) {
	ip, err := g.ipam.AcquireIP(ctx, g.prefix)
	if err != nil {
		return netip.Addr{}, err
	}
	return ip.IP, nil
}

func (g *goIPAM) release(ctx context.Context, _ string, addr netip.Addr) error {
	return g.ipam.ReleaseIPFromPrefix(ctx, g.prefix, addr.String())
}

func (g *goIPAM) close() error { return nil }
