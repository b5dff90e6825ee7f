package config

import (
	"fmt"
	"net/netip"
	"time"

	"math"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/ipamd/ipamd/ipam"
)

// Check returns [Problems] when a value makes no sense. It looks at nothing
// outside the configuration: a file that is fine here is fine everywhere.
func (c Config) Check() error {
	var ps Problems
	c.Book.check(&ps)
	c.Socket.check(&ps)
	c.Bridge.check(&ps)
	specs := c.specs(&ps)
	if slices.ContainsFunc(specs, func(s ipam.PoolSpec) bool { return s.Prefix.Addr().Is6() }) &&
		c.Bridge.MTU != 0 && c.Bridge.MTU < ipv6MTU {
		ps.add("bridge.mtu", "%d bytes are too few for IPv6, which needs %d", c.Bridge.MTU, ipv6MTU)
	}
	c.Allocation.check(&ps)
	c.Probe.check(&ps)
	c.Runtime.check(&ps)
	if c.Allocation.Require == "all" && c.Runtime.Kind == "none" {
		ps.add("allocation.require", "all asks for the runtime's word too, and runtime.kind is none")
	}
	c.Watchdog.check(&ps)
	c.Owner.check(&ps)
	if c.Watchdog.RemoveOrphans && c.Owner.Socket == "" {
		ps.add("watchdog.remove_orphans", "only an owner can call a running container an orphan, and owner.socket names none")
	}
	if c.Owner.Socket != "" && c.Runtime.Kind == "none" {
		ps.add("owner.socket", "its answers are about containers, and runtime.kind is none")
	}
	c.Wake.check(&ps)
	if c.Wake.Resumer == "containerd" && c.Runtime.Kind == "none" {
		ps.add("wake.resumer", "containerd is to resume tasks, and runtime.kind is none")
	}
	c.Idle.check(&ps)
	c.Reconcile.check(&ps)
	c.Enforce.check(&ps)
	c.Metrics.check(&ps)
	ps.oneOf("log.level", c.Log.Level, "debug", "info", "warn", "error")
	ps.oneOf("log.format", c.Log.Format, "auto", "text", "json", "journal")
	return ps.err()
}

const (
	ipv6MTU    = 1280  // RFC 8200, section 5
	ipv4MTU    = 68    // RFC 791, section 3.2
	bridgeMTU  = 65535 // what the kernel takes for a bridge
	maxRunner  = 253   // bytes
	maxBounded = 65536 // connections, conflicts, candidates: more is a typing error
)

func (b Book) check(ps *Problems) {
	ps.absolute("book.path", b.Path)
	ps.oneOf("book.synchronous", b.Synchronous, "full", "normal")
	if b.ChangesKept <= 0 {
		ps.add("book.changes_kept", "%d is not above 0", b.ChangesKept)
	}
	ps.positive("book.changes_kept_for", b.ChangesKeptFor)
	if len(b.RunnerUID) > maxRunner || strings.ContainsFunc(b.RunnerUID, func(r rune) bool { return r <= ' ' || r == 0x7f }) {
		ps.add("book.runner_uid", "%.40q is longer than %d bytes, or has spaces or control characters", b.RunnerUID, maxRunner)
	}
}

func (s Socket) check(ps *Problems) {
	if ps.absolute("socket.path", s.Path) {
		if most := len(unix.RawSockaddrUnix{}.Path) - 1; len(s.Path) > most {
			ps.add("socket.path", "%q has %d bytes, and a socket's path may have %d", s.Path, len(s.Path), most)
		}
	}
	if _, err := s.FileMode(); err != nil {
		ps.add("socket.mode", "%v", err)
	}
	for _, l := range []struct {
		key string
		ids []uint32
	}{{"socket.runtime_uids", s.RuntimeUIDs}, {"socket.runtime_gids", s.RuntimeGIDs}} {
		if slices.Contains(l.ids, math.MaxUint32) {
			ps.add(l.key, "%d stands for no user", uint32(math.MaxUint32))
		}
	}
	ps.within("socket.max_connections", s.MaxConnections, 1, maxBounded)
	ps.within("socket.max_in_flight", s.MaxInFlight, 1, maxBounded)
	ps.within("socket.max_rate", s.MaxRate, 0, maxBounded)
	ps.within("socket.max_reader_rate", s.MaxReaderRate, 0, maxBounded)
	ps.positive("socket.deadline", s.Deadline)
}

func (b Bridge) check(ps *Problems) {
	if b.MTU != 0 && (b.MTU < ipv4MTU || b.MTU > bridgeMTU) {
		ps.add("bridge.mtu", "%d is neither 0 nor from %d to %d bytes", b.MTU, ipv4MTU, bridgeMTU)
	}
	ps.positive("bridge.refresh", b.Refresh)
	for _, folder := range b.Netns {
		if ps.absolute("bridge.netns", folder) && filepath.Clean(folder) != folder {
			ps.add("bridge.netns", "%q is not clean: write %s", folder, filepath.Clean(folder))
		}
	}
}

func (a Allocation) check(ps *Problems) {
	ps.positive("allocation.cooldown", a.Cooldown)
	if ps.positive("allocation.cooldown_min", a.CooldownMin) && a.CooldownMin > a.Cooldown {
		ps.add("allocation.cooldown_min", "%s is longer than allocation.cooldown, which is %s", a.CooldownMin, a.Cooldown)
	}
	ps.oneOf("allocation.exhausted", a.Exhausted, "oldest", "strict")
	if ps.positive("allocation.bind_within", a.BindWithin) && a.BindWithin > Duration(ipam.MaxBindWait) {
		ps.add("allocation.bind_within", "%s is more than %s", a.BindWithin, Duration(ipam.MaxBindWait))
	}
	ps.within("allocation.max_conflicts", a.MaxConflicts, 1, maxBounded)
	ps.oneOf("allocation.require", a.Require, "kernel", "all")
	ps.positive("allocation.quarantine", a.Quarantine)
	if !(a.QuarantineShare > 0 && a.QuarantineShare <= 1) { // so that nan is refused too
		ps.add("allocation.quarantine_share", "%v is not above 0 and up to 1", a.QuarantineShare)
	}
	ps.positive("allocation.tombstone", a.Tombstone)
}

func (p Probe) check(ps *Problems) {
	ps.positive("probe.window", p.Window)
	ps.within("probe.ahead", p.Ahead, 1, maxBounded)
}

// A containerd namespace, as containerd's identifiers are.
var namespaceName = regexp.MustCompile(`^[A-Za-z0-9]+([._-][A-Za-z0-9]+)*$`)

const (
	maxNamespace = 76   // bytes
	maxLabel     = 4096 // bytes of a label's name and value together
)

func (r Runtime) check(ps *Problems) {
	ps.oneOf("runtime.kind", r.Kind, "containerd", "none")
	ps.absolute("runtime.address", r.Address)
	switch {
	case len(r.Namespaces) == 0:
		ps.add("runtime.namespaces", "names none; ['*'] reads every one")
	case slices.Contains(r.Namespaces, "*"):
		if len(r.Namespaces) > 1 {
			ps.add("runtime.namespaces", "'*' stands alone")
		}
	default:
		for _, ns := range r.Namespaces {
			if len(ns) > maxNamespace || !namespaceName.MatchString(ns) {
				ps.add("runtime.namespaces", "%.80q is no containerd namespace", ns)
			}
		}
	}
	ps.positive("runtime.timeout", r.Timeout)
	labels := []struct{ key, name string }{
		{"runtime.owner_label", r.OwnerLabel}, {"runtime.address_label", r.AddressLabel},
		{"runtime.lease_label", r.LeaseLabel}, {"runtime.uid_label", r.UIDLabel},
	}
	for i, l := range labels {
		if l.name == "" || len(l.name) >= maxLabel {
			ps.add(l.key, "a label's name has 1 to %d bytes, not %d", maxLabel-1, len(l.name))
		}
		for _, other := range labels[:i] {
			if l.name == other.name && l.name != "" {
				ps.add(l.key, "%.80q is %s already", l.name, other.key)
			}
		}
	}
}

func (w Wake) check(ps *Problems) {
	ps.oneOf("wake.resumer", w.Resumer, "event", "containerd", "exec")
	switch {
	case w.Resumer == "exec" && len(w.Command) == 0:
		ps.add("wake.command", "exec wants a program, and none is named")
	case w.Resumer != "exec" && len(w.Command) > 0:
		ps.add("wake.command", "nothing runs it: wake.resumer is %.40q, not exec", w.Resumer)
	case len(w.Command) > 0:
		ps.absolute("wake.command", w.Command[0])
	}
	if d := time.Duration(w.Wait); d < ipam.LeastWait || d > ipam.MostWait {
		ps.add("wake.wait", "%v is not from %v to %v", w.Wait, ipam.LeastWait, ipam.MostWait)
	}
}

func (i Idle) check(ps *Problems) {
	if d := time.Duration(i.After); d != 0 && d < ipam.LeastIdle {
		ps.add("idle.after", "%v is neither 0s nor %v or more", i.After, ipam.LeastIdle)
	}
	if _, err := i.Prefixes(); err != nil {
		ps.add("idle.ignore", "%v", err)
	}
}

// Prefixes are those whose packets count for nothing.
func (i Idle) Prefixes() (out []netip.Prefix, err error) {
	for _, text := range i.Ignore {
		p, err := netip.ParsePrefix(text)
		if a, bad := netip.ParseAddr(text); bad == nil {
			p, err = a.Prefix(a.BitLen())
		}
		switch {
		case err != nil:
			return nil, fmt.Errorf("%.60q is no address or prefix", text)
		case p != p.Masked():
			return nil, fmt.Errorf("%s has bits beyond its length: write %s", p, p.Masked())
		}
		out = append(out, p)
	}
	return out, nil
}

func (e Enforce) check(ps *Problems) {
	ps.oneOf("enforce.mode", e.Mode, "off", "observe", "enforce")
	ps.oneOf("enforce.unleased", e.Unleased, "allow", "drop")
	for _, pattern := range e.Trusted {
		name := strings.TrimSuffix(pattern, "*")
		switch {
		case pattern == "*":
			ps.add("enforce.trusted", "%q is every port: say so by enforce.unleased = 'allow'", pattern)
		case name == "" || name == "." || name == ".." || strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r >= 0x7f || strings.ContainsRune("/:*", r) }):
			ps.add("enforce.trusted", "%.40q is no name of an interface, nor the begin of one with a * behind", pattern)
		case len(name) >= unix.IFNAMSIZ:
			ps.add("enforce.trusted", "%.40q is longer than an interface's name, which has %d bytes at most", pattern, unix.IFNAMSIZ-1)
		}
	}
}

func (w Watchdog) check(ps *Problems) {
	ps.positive("watchdog.timeout", w.Timeout)
	ps.within("watchdog.parallel", w.Parallel, 1, maxBounded)
	ps.positive("watchdog.releasing_max", w.ReleasingMax)
	ps.positive("watchdog.kill_wait", w.KillWait)
}

func (o Owner) check(ps *Problems) {
	if o.Socket != "" {
		ps.absolute("owner.socket", o.Socket)
	}
	if slices.Contains(o.UIDs, math.MaxUint32) {
		ps.add("owner.uids", "%d stands for no user", uint32(math.MaxUint32))
	}
	ps.positive("owner.timeout", o.Timeout)
	ps.positive("owner.every", o.Every)
	ps.positive("owner.grace", o.Grace)
}

func (r Reconcile) check(ps *Problems) {
	ps.positive("reconcile.every", r.Every)
	ps.within("reconcile.misses", r.Misses, 1, maxBounded)
	ps.positive("reconcile.age", r.Age)
	if !(r.MaxReleases > 0 && r.MaxReleases <= 1) { // so that nan is refused too
		ps.add("reconcile.max_releases", "%v is not above 0 and up to 1", r.MaxReleases)
	}
	ps.within("reconcile.least_releases", r.LeastReleases, 1, maxBounded)
}

func (ps *Problems) absolute(key, path string) bool {
	if !filepath.IsAbs(path) || strings.ContainsRune(path, 0) {
		ps.add(key, "%q is no absolute path", path)
		return false
	}
	return true
}

func (ps *Problems) positive(key string, d Duration) bool {
	if d <= 0 {
		ps.add(key, "%s is not above 0", d)
		return false
	}
	return true
}

func (ps *Problems) within(key string, n, least, most int) {
	if n < least || n > most {
		ps.add(key, "%d is not from %d to %d", n, least, most)
	}
}

func (ps *Problems) oneOf(key, value string, choices ...string) {
	if !slices.Contains(choices, value) {
		ps.add(key, "%.40q is none of: %s", value, strings.Join(choices, ", "))
	}
}
