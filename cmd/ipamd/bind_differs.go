package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/bridge"
	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/netdb"
)

// compareWithin is how long the answer to a bind, which is durable by then, waits
// for the kernel.
const compareWithin = 250 * time.Millisecond

// kernelView is what the kernel shows of a lease's plumbing.
type kernelView struct {
	seen  []census.Sighting // of the lease's address
	ports map[string]string // the MACs of the bridge's ports, by their names
	netns namespace         // at the path that the bind names
}

// A namespace is one that a path leads to.
type namespace struct {
	known bool // it could be asked about
	id    int  // as in "nsid:7"; -1: no port leads there
}

// bindWarnings compares what a bind names with what the kernel shows. l is the
// lease after the bind. What is not seen yet differs from nothing: a runtime may
// bind before it plugs.
func bindWarnings(l *netdb.Lease, asked netdb.Binding, k kernelView) (out []api.BindWarning) {
	warn := func(field, given, seen, message string, args ...any) {
		out = append(out, api.BindWarning{Field: field, Given: given, Seen: seen, Message: fmt.Sprintf(message, args...)})
	}
	spaces := slices.DeleteFunc(slices.Clone(k.seen), func(s census.Sighting) bool { return s.Witness != census.Netns || s.Port == "" })
	elsewhere := func(s census.Sighting) bool { return l.HostInterface != "" && !s.Behind(l.HostInterface) }
	unlike := func(s census.Sighting) bool { return l.MAC != "" && s.MAC != l.MAC }
	if len(spaces) > 0 && !slices.ContainsFunc(spaces, func(s census.Sighting) bool { return !elsewhere(s) }) {
		// That with the lease's MAC is the likeliest to be its own.
		if i := slices.IndexFunc(spaces, func(s census.Sighting) bool { return !unlike(s) }); i > 0 {
			spaces[0], spaces[i] = spaces[i], spaces[0]
		}
		if asked.HostInterface != "" {
			what := "is another port"
			if _, is := k.ports[l.HostInterface]; !is {
				what = "is no port of the bridge"
			}
			warn("host_interface", l.HostInterface, spaces[0].Port, "%s %s: %s is seen behind port %s", l.HostInterface, what, l.Addr, spaces[0].Port)
		}
	} else {
		spaces = slices.DeleteFunc(spaces, elsewhere)
	}
	var at census.Sighting // the lease's own place, as far as is seen
	if len(spaces) > 0 {
		at = spaces[0]
	}
	if asked.MAC != "" && !slices.ContainsFunc(spaces, func(s census.Sighting) bool { return !unlike(s) }) {
		if port := portOf(l.MAC, k.ports); port != "" {
			message := fmt.Sprintf("%s is the MAC of port %s itself, the host's end, not of the sandbox's interface", l.MAC, port)
			if at.MAC != "" {
				message += ", which has " + at.MAC
			}
			warn("mac", l.MAC, at.MAC, "%s", message)
		} else if at.MAC != "" {
			warn("mac", l.MAC, at.MAC, "%s is seen with %s behind port %s, not with %s", l.Addr, at.MAC, at.Port, l.MAC)
		}
	}
	if _, is := k.ports[at.Port]; is && asked.Netns != "" && k.netns.known && !slices.ContainsFunc(spaces, k.netns.is) {
		warn("netns", l.Netns, at.Netns, "%s is not the namespace behind port %s, which is %s", l.Netns, at.Port, at.Netns)
	}
	return out
}

// is reports whether something was seen in the namespace.
func (n namespace) is(s census.Sighting) bool {
	label, _, _ := strings.Cut(s.Netns, " ")
	return label == fmt.Sprintf("nsid:%d", n.id)
}

// portOf is the port whose own MAC this is, "" for none.
func portOf(mac string, ports map[string]string) string {
	for name, m := range ports {
		if m == mac {
			return name
		}
	}
	return ""
}

// binds compares what binds name with the kernel, through the bridge.
type binds struct {
	bridge interface {
		Settle(ctx context.Context, about ...netip.Addr) error
		PortMACs() map[string]string
		NetnsID(ctx context.Context, path string) (int, error)
	}
	board *census.Board
	log   *slog.Logger
}

// compare returns and logs what differs. What the kernel does not answer in time
// is not compared.
func (b binds) compare(ctx context.Context, l *netdb.Lease, asked netdb.Binding) []api.BindWarning {
	if asked.HostInterface == "" && asked.MAC == "" && asked.Netns == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, compareWithin)
	defer cancel()
	if err := b.bridge.Settle(ctx, l.Addr); err != nil {
		return nil
	}
	k := kernelView{seen: b.board.About(l.Addr).Seen, ports: b.bridge.PortMACs()}
	if asked.Netns != "" && len(k.seen) > 0 {
		id, err := b.bridge.NetnsID(ctx, l.Netns)
		switch {
		case err == nil:
			k.netns = namespace{known: true, id: id}
		case errors.Is(err, bridge.ErrNoNetnsID):
			k.netns = namespace{known: true, id: -1}
		}
	}
	found := bindWarnings(l, asked, k)
	if len(found) > 0 {
		var differs []string
		for _, w := range found {
			differs = append(differs, w.Message)
		}
		b.log.Warn("a bind differs from what the kernel shows", "addr", l.Addr, "sandbox", l.Sandbox, "lease", l.ID, "differs", strings.Join(differs, "; "))
	}
	return found
}
