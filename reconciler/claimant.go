package reconciler

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/workload"
)

// index finds leases and containers by what ties them together.
func (v *view) index() {
	var all []census.Sighting
	for _, seen := range v.census.Seen {
		for _, s := range seen {
			if s.Witness == census.Runtime {
				all = append(all, s)
			}
		}
	}
	v.containers, v.leases, v.links = workload.NewContainers(workload.Seen, all), workload.NewLeases(v.book), workload.RecordedBy(v.book, v.now.BootID)
	v.ids, v.ports, v.spaces = make(map[string]netip.Addr, len(v.book)), make(map[string][]*ipam.Lease), make(map[string][]*ipam.Lease)
	for _, l := range v.book {
		v.ids[l.ID] = l.Addr
		if l.State.Open() || l.State == ipam.Releasing {
			v.ports[l.HostInterface] = append(v.ports[l.HostInterface], l)
			v.spaces[l.Netns] = append(v.spaces[l.Netns], l)
		}
	}
}

// of returns what the runtime shows of a lease's containers. A container is there
// whatever its task does.
func (v *view) of(l *ipam.Lease) []census.Sighting { return v.containers.Of(l, v.leases) }

func containerOf(s census.Sighting) ipam.Container { return workload.Seen(s).Container }

// shows reports whether the runtime shows a container that a lease records.
func (v *view) shows(l *ipam.Lease) bool {
	return slices.ContainsFunc(l.Containers, func(c ipam.Container) bool { return len(v.containers.At(c)) > 0 })
}

// A claimant is one workload whose labels claim an address: the containers of
// one incarnation of one sandbox, or a container that names no owner.
type claimant struct {
	sandbox    string
	uid        string // "" when no label says
	containers []census.Sighting
}

// claimants returns who claims an address, of all that is seen of it. Stopped
// ones count. Two incarnations of a sandbox are two: each has a lease of its
// own.
func claimants(seen []census.Sighting) []claimant {
	var out []claimant
	for _, s := range seen {
		if s.Witness != census.Runtime {
			continue
		}
		at := slices.IndexFunc(out, func(c claimant) bool {
			return s.Sandbox != "" && c.sandbox == s.Sandbox && (c.uid == s.UID || c.uid == "" || s.UID == "")
		})
		if at < 0 {
			out = append(out, claimant{sandbox: s.Sandbox})
			at = len(out) - 1
		}
		out[at].add(s)
	}
	return out
}

func (c *claimant) add(s census.Sighting) {
	c.uid = cmp.Or(c.uid, s.UID)
	c.containers = append(c.containers, s)
}

// leaseID is the lease label of the containers; "" when they differ.
func (c claimant) leaseID() string {
	id := ""
	for _, s := range c.containers {
		if id != "" && s.LeaseID != "" && s.LeaseID != id {
			return ""
		}
		id = cmp.Or(id, s.LeaseID)
	}
	return id
}

// name is the claimant for a person to read.
func (c claimant) name() string {
	if c.sandbox == "" {
		return "container " + c.containers[0].Namespace + "/" + c.containers[0].Container
	}
	return fmt.Sprintf("sandbox %q", c.sandbox)
}

// unfit says why no lease can be of this workload, "" when one can. Such a
// workload is not adopted: the book would refuse it, at each pass anew.
func (c claimant) unfit() string {
	// In one order: of two faults each pass reports the same.
	for _, label := range []struct{ of, says string }{{"owner", c.sandbox}, {"uid", c.uid}} {
		switch {
		case len(label.says) > ipam.MaxName:
			return fmt.Sprintf("its %s label has %d bytes, and a lease's name has %d at most (%.40q…)", label.of, len(label.says), ipam.MaxName, label.says)
		case !utf8.ValidString(label.says):
			return fmt.Sprintf("its %s label %.40q is no UTF-8", label.of, label.says)
		}
	}
	if n := len(containersOf(c.containers)); n > ipam.MaxContainers {
		return fmt.Sprintf("it has %d containers, and a lease records %d at most", n, ipam.MaxContainers)
	}
	return ""
}

// mayHave reports whether what the row says does not speak against the claim:
// there is no row, the claim is newer, or the row is a quarantine that the
// claimant explains.
func (c claimant) mayHave(v *view, row *ipam.Lease, seen []census.Sighting) bool {
	return row == nil || c.newer(v, row) || c.explains(row, seen)
}

// explains reports whether a quarantine is no dispute, because it is of this
// claimant alone: the address was not held, and its evidence is this workload,
// or one port on which it may be that is the only one that shows the address
// now, too. Such a quarantine is made while the runtime is silent. Evidence of
// any other is for a person to judge.
func (c claimant) explains(row *ipam.Lease, seen []census.Sighting) bool {
	then := census.ParseEvidence(row.Evidence)
	if row.State != ipam.Quarantined || row.Sandbox != "" || len(then) == 0 {
		return false
	}
	wired, port := false, ""
	for i, s := range slices.Concat(then, seen) {
		switch s.Witness {
		case census.Runtime:
			if s.Sandbox != c.sandbox || s.UID != "" && c.uid != "" && s.UID != c.uid {
				return false
			}
		case census.Netns, census.Neighbour, census.Probe:
			wired = wired || i >= len(then)
			if s.Port == "" || s.Port == s.Bridge {
				continue // by whom it is seen, not where
			}
			if port != "" && s.Port != port {
				return false
			}
			port = s.Port
		default:
			return false
		}
	}
	return !wired || anyTask(c.containers, taskRunning, taskPaused)
}

// newer reports whether a claim began after a row entered its state. The
// one container whose claim is older was known when the row was written.
//
// A clock that is set back, as from a wrong RTC's time to NTP's, dates every claim before such a row, and the row
// itself in the future: then what has passed since both says which came first. A claim of a moment that is yet to
// come is from before the clock was set. Once the row's date has passed, as soon after a small step, dates alone count:
// of claims within the step it cannot be told which came first, and such a one is no proof.
func (c claimant) newer(v *view, row *ipam.Lease) bool {
	ahead := row.Since.Wall.After(v.now.Wall)
	return !slices.ContainsFunc(c.containers, func(s census.Sighting) bool {
		return !s.At.After(row.Since.Wall) && !(ahead && !s.At.After(v.now.Wall) && v.newer(row, s.At))
	})
}

// binding is what is known of how a workload uses an address: its containers,
// and the port and the MAC when one namespace alone has the address, in which one of
// them lives. The namespace's path cannot be seen from here.
func (v *view) binding(containers, seen []census.Sighting) ipam.Binding {
	b := ipam.Binding{Containers: containersOf(containers)}
	var wire []census.Sighting
	for _, s := range seen {
		if s.Witness == census.Netns {
			wire = append(wire, s)
		}
	}
	if len(wire) == 1 && len(v.at(containers, wire[0])) > 0 {
		b.HostInterface, b.MAC = wire[0].Port, wire[0].MAC
	}
	return b
}

// containersOf are the containers of sightings, in the order of their names.
func containersOf(seen []census.Sighting) (out []ipam.Container) {
	for _, s := range seen {
		if c := containerOf(s); !slices.Contains(out, c) {
			out = append(out, c)
		}
	}
	slices.SortFunc(out, ipam.Container.Compare)
	return out
}

// The states of tasks, as the runtime witness spells them. A task that is
// unknown is none of them.
const (
	taskRunning = "running"
	taskPaused  = "paused"
	taskStopped = "stopped"
)

// allPaused reports whether a workload is paused: at least one of its tasks
// is, and every other one has ended.
func allPaused(containers []census.Sighting) bool {
	some := false
	for _, s := range containers {
		some = some || s.Task == taskPaused
		if s.Task != taskPaused && s.Task != taskStopped {
			return false
		}
	}
	return some
}

func anyTask(containers []census.Sighting, states ...string) bool {
	return slices.ContainsFunc(containers, func(s census.Sighting) bool { return slices.Contains(states, s.Task) })
}

// latest is when the last of some tasks came into its state.
func latest(seen []census.Sighting) time.Time {
	return slices.MaxFunc(seen, func(a, b census.Sighting) int { return a.TaskAt.Compare(b.TaskAt) }).TaskAt
}
