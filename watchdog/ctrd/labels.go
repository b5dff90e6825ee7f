package ctrd

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/containerd/containerd/v2/core/containers"

	"github.com/ipamd/ipamd/census"
)

// mostAddresses bounds the addresses that one container's labels claim: both
// families on four interfaces. One record with a label for each address took a whole
// pool.
const (
	mostAddresses = 8
	mostLabels    = 4 * mostAddresses // that are looked at for that
)

// A task is what is known of a container's task.
type task struct {
	state string    // as in census.Sighting.Task
	pid   uint32    // of its first process, while it lives
	began time.Time // when that was started; zero: not known
	note  string    // why the state is unknown
}

// sightings returns what a container's labels claim, one sighting an address,
// and a reason for each label that cannot be read, or is beyond mostAddresses. A
// container that claims none is one sighting without an address: it is there.
//
// A claim is as old as the record or, if that was changed since, as the change:
// containerd dates what is done to labels there, and nothing that a task does.
// So a claim is the same before and after a restart of either. A change of
// other labels makes it look younger to a witness that starts later.
func (c Config) sightings(namespace string, of containers.Container, t task) (seen []census.Sighting, unread []string) {
	there := census.Sighting{
		At:        latest(of.CreatedAt, of.UpdatedAt),
		Namespace: namespace,
		Container: of.ID,
		Sandbox:   of.Labels[c.OwnerLabel],
		LeaseID:   of.Labels[c.LeaseLabel],
		Task:      t.state,
		PID:       t.pid,
		Began:     t.began,
		Note:      t.note,
	}
	if c.UIDLabel != "" {
		there.UID = of.Labels[c.UIDLabel]
	}
	for i, label := range c.addressLabels(of.Labels) {
		addr, ok := parseAddress(of.Labels[label])
		known := slices.ContainsFunc(seen, func(s census.Sighting) bool { return s.Addr == addr })
		if len(seen) == mostAddresses && !known || i == mostLabels {
			unread = append(unread, fmt.Sprintf("container %s: it has more than %d addresses, or %d address labels; label %.100s and those behind it are not read",
				scope(namespace, of.ID), mostAddresses, mostLabels, label))
			break
		}
		if !ok {
			unread = append(unread, fmt.Sprintf("container %s: label %.100s = %.100q is no address",
				scope(namespace, of.ID), label, of.Labels[label]))
			continue
		}
		if known {
			continue
		}
		claim := there
		claim.Addr = addr
		seen = append(seen, claim)
	}
	if len(seen) == 0 {
		seen = append(seen, there)
	}
	if reason := unreadable(unread); reason != nil {
		seen[0].Unread = reason.Error()
	}
	return seen, unread
}

func latest(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// addressLabels returns the labels that hold addresses, in the order of their
// numbers.
func (c Config) addressLabels(labels map[string]string) []string {
	var names []string
	for name := range maps.Keys(labels) {
		number, ok := strings.CutPrefix(name, c.AddressLabel)
		if ok && strings.Trim(number, "0123456789") == "" {
			names = append(names, name)
		}
	}
	slices.SortFunc(names, func(a, b string) int {
		return cmp.Or(cmp.Compare(len(a), len(b)), strings.Compare(a, b))
	})
	return names
}

// parseAddress reads "10.8.64.2" and "10.8.64.2/24", of both families. What
// no sandbox can hold (0.0.0.0, a multicast group) is no address.
func parseAddress(value string) (netip.Addr, bool) {
	addr, err := netip.ParseAddr(value)
	if err != nil {
		prefix, err := netip.ParsePrefix(value)
		if err != nil {
			return netip.Addr{}, false
		}
		addr = prefix.Addr()
	}
	addr = addr.Unmap().WithZone("")
	return addr, !addr.IsUnspecified() && !addr.IsMulticast()
}

// scope is the board's name for one container.
func scope(namespace, id string) string { return namespace + "/" + id }
