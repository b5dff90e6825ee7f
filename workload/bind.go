package workload

import (
	"fmt"
	"slices"

	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/ipam"
)

// A KernelView is what the kernel shows of a lease's plumbing.
type KernelView struct {
	Seen  []census.Sighting // of the lease's address
	Ports map[string]string // the MACs of the bridge's ports, by their names
	Netns Namespace         // at the path that the bind names
}

// A Namespace is one that a path leads to.
type Namespace struct {
	Known bool           // it could be asked about
	ID    census.NetnsID // the zero value: no port leads there
}

// A BindDifference is one field of a bind that the kernel shows otherwise.
type BindDifference struct {
	Field   string // mac, host_interface or netns
	Given   string
	Seen    string // "" when only that it cannot be is known
	Message string // one sentence
}

// BindDiffers compares what a bind names with what the kernel shows. l is the
// lease after the bind. What is not seen yet differs from nothing: a runtime may
// bind before it plugs.
func BindDiffers(l *ipam.Lease, asked ipam.Binding, k KernelView) (out []BindDifference) {
	warn := func(field, given, seen, message string, args ...any) {
		out = append(out, BindDifference{Field: field, Given: given, Seen: seen, Message: fmt.Sprintf(message, args...)})
	}
	spaces := slices.DeleteFunc(slices.Clone(k.Seen), func(s census.Sighting) bool { return s.Witness != census.Netns || s.Port == "" })
	elsewhere := func(s census.Sighting) bool { return l.HostInterface != "" && !s.Behind(l.HostInterface) }
	unlike := func(s census.Sighting) bool { return l.MAC != "" && s.MAC != l.MAC }
	if len(spaces) > 0 && !slices.ContainsFunc(spaces, func(s census.Sighting) bool { return !elsewhere(s) }) {
		// That with the lease's MAC is the likeliest to be its own.
		if i := slices.IndexFunc(spaces, func(s census.Sighting) bool { return !unlike(s) }); i > 0 {
			spaces[0], spaces[i] = spaces[i], spaces[0]
		}
		if asked.HostInterface != "" {
			what := "is another port"
			if _, is := k.Ports[l.HostInterface]; !is {
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
		if port := portOf(l.MAC, k.Ports); port != "" {
			message := fmt.Sprintf("%s is the MAC of port %s itself, the host's end, not of the sandbox's interface", l.MAC, port)
			if at.MAC != "" {
				message += ", which has " + at.MAC
			}
			warn("mac", l.MAC, at.MAC, "%s", message)
		} else if at.MAC != "" {
			warn("mac", l.MAC, at.MAC, "%s is seen with %s behind port %s, not with %s", l.Addr, at.MAC, at.Port, l.MAC)
		}
	}
	if _, is := k.Ports[at.Port]; is && asked.Netns != "" && k.Netns.Known && !slices.ContainsFunc(spaces, k.Netns.is) {
		warn("netns", l.Netns, at.Netns.String(), "%s is not the namespace behind port %s, which is %s", l.Netns, at.Port, at.Netns)
	}
	return out
}

// is reports whether something was seen in the namespace.
func (n Namespace) is(s census.Sighting) bool {
	return n.ID.Is(s.Netns)
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
