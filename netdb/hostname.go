package netdb

import (
	"cmp"
	"fmt"
	"iter"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/netdb/sqlite"
)

// A link is what a name is leased to. An interface has one link, whatever pools its
// addresses are of.
type link struct{ uid, iface string }

func linkOf(n *ipam.HostName) link { return link{n.UID, n.Interface} }

// numbered is the mark in a pattern of names where a number goes, as the kernel has it.
const numbered = "%d"

// leastDigits is how much room a pattern leaves for the number, in bytes.
const leastDigits = 4

// checkHostName checks a name, or a pattern like veth%d.
func checkHostName(want string) error {
	if !strings.Contains(want, "%") {
		if ipam.CheckInterface(want) != nil {
			return ipam.Invalid("host_interface_name", "%.40q is no interface name of 1 to %d bytes", want, ipam.MaxInterface)
		}
		return nil
	}
	prefix, found := strings.CutSuffix(want, numbered)
	if !found || strings.Contains(prefix, "%") || ipam.CheckInterface(prefix) != nil || len(prefix) > ipam.MaxInterface-leastDigits {
		return ipam.Invalid("host_interface_name", "%.40q is no pattern: up to %d bytes of a name, and %s at its end", want, ipam.MaxInterface-leastDigits, numbered)
	}
	return nil
}

// fits reports whether a name is what a request wants: it, or one of its pattern.
func fits(want, name string) bool {
	prefix, pattern := strings.CutSuffix(want, numbered)
	if !pattern {
		return want == name
	}
	digits, found := strings.CutPrefix(name, prefix)
	if !found {
		return false
	}
	n, err := strconv.ParseUint(digits, 10, 64)
	return err == nil && strconv.FormatUint(n, 10) == digits
}

// nameTries bounds how many names of a pattern are proposed for one request.
const nameTries = 100

// A Naming asks for a host interface name beside a lease. The zero value asks for none.
type Naming struct {
	Want string // a name, or a pattern like veth%d; "" for none
	Name string // the one to take, of those that [Book.Names] yields for it
}

// Names yields the names that an interface of a sandbox may have for what it wants, a name
// or a pattern like veth%d: the one that it has; those of links that its leases record;
// else what is leased to no other. own says of a name that its link is known to be the
// interface's own; no other name may be given while a link of the host has it. Those of a
// pattern are other ones each time, so that a name is used again late, and the cost does not
// depend on how many there are.
func (m *memory) Names(uid, iface, want string) iter.Seq2[string, bool] {
	return func(yield func(name string, own bool) bool) {
		m.mu.RLock()
		var own []string
		if has := m.idx.hostNameOf[link{uid, iface}]; has != nil {
			own = append(own, has.Name)
		}
		for _, l := range m.idx.byUID[uid] {
			if l.Interface == iface && fits(want, l.HostInterface) && m.idx.hostNames[l.HostInterface] == nil {
				own = append(own, l.HostInterface)
			}
		}
		m.mu.RUnlock()
		for _, name := range own {
			if !yield(name, true) {
				return
			}
		}
		prefix, pattern := strings.CutSuffix(want, numbered)
		room := int64(math.Pow10(min(ipam.MaxInterface-len(prefix), 9)))
		for range nameTries {
			name := want
			if pattern {
				name = prefix + strconv.FormatInt(m.nameCount.Add(1)%room, 10)
			}
			m.mu.RLock()
			held := m.idx.hostNames[name] != nil
			m.mu.RUnlock()
			if !held && !yield(name, false) || !pattern {
				return
			}
		}
	}
}

// nameLink returns what to stage with the next change of a lease: the name that is given, nil
// where its interface has one already.
func (t *tx) nameLink(l *ipam.Lease, n Naming) (*ipam.HostName, error) {
	if n.Want == "" {
		return nil, nil
	}
	if has := t.hostNameOf(link{l.UID, l.Interface}); has != nil {
		if !fits(n.Want, has.Name) {
			return nil, fmt.Errorf("host interface name %s: %w: sandbox %q has %s for %s", n.Want, ipam.ErrState, l.Sandbox, has.Name, l.Interface)
		}
		return nil, nil
	}
	if !fits(n.Want, n.Name) {
		return nil, ipam.Invalid("host_interface_name", "%.40q is not %s", n.Name, n.Want)
	}
	if has := t.named(n.Name); has != nil {
		return nil, fmt.Errorf("host interface name %s: %w: sandbox uid %q has it for %s", n.Name, ipam.ErrNameTaken, has.UID, has.Interface)
	}
	return &ipam.HostName{Name: n.Name, UID: l.UID, Interface: l.Interface, Rev: t.staged.rev + 1}, nil
}

// hostNameOf returns the name of a link, or nil.
func (t *tx) hostNameOf(of link) *ipam.HostName {
	return look(of, t.staged.hostNameOf, t.idx.hostNameOf)
}

// named returns who has a name, or nil.
func (t *tx) named(name string) *ipam.HostName {
	return look(name, t.staged.hostNames, t.idx.hostNames)
}

// holdsName reports whether a row keeps its interface's name: every one but that of a
// removal that is confirmed.
func holdsName(l *ipam.Lease) bool { return l.UID != "" && l.State != ipam.Cooling }

// rowsOf returns the rows by which a link keeps its name.
func (t *tx) rowsOf(of link) []*ipam.Lease {
	return slices.DeleteFunc(t.heldBy(of.uid), func(l *ipam.Lease) bool { return l.Interface != of.iface })
}

// unname ends the name of a row that was the last of its link.
func (t *tx) unname(old *ipam.Lease) {
	if old == nil || !holdsName(old) {
		return
	}
	of := link{old.UID, old.Interface}
	if has := t.hostNameOf(of); has != nil && len(t.rowsOf(of)) == 0 {
		t.staged.rename(nil, has)
	}
}

// rename adds to the last step which name is given with it, or ends.
func (o *overlay) rename(given, ended *ipam.HostName) {
	s := o.last()
	s.named, s.unnamed = cmp.Or(given, s.named), cmp.Or(ended, s.unnamed)
	o.noteNames(*s)
}

func (o *overlay) noteNames(s step) {
	if n := s.unnamed; n != nil {
		o.hostNames[n.Name], o.hostNameOf[linkOf(n)] = nil, nil
	}
	if n := s.named; n != nil {
		o.hostNames[n.Name], o.hostNameOf[linkOf(n)] = n, n
	}
}

// setNames makes the index agree with a step.
func (x *index) setNames(s step) {
	if n := s.unnamed; n != nil {
		delete(x.hostNames, n.Name)
		delete(x.hostNameOf, linkOf(n))
	}
	if n := s.named; n != nil {
		x.hostNames[n.Name], x.hostNameOf[linkOf(n)] = n, n
	}
}

const (
	insertHostName = `INSERT INTO interface_names (rev, name, uid, interface, ended) VALUES (?,?,?,?,0)`
	endHostName    = `UPDATE interface_names SET ended = ? WHERE name = ? AND rev = ? AND ended = 0`
	pruneHostNames = `DELETE FROM interface_names WHERE rev <= ?1 AND ended > 0 AND ended <= ?1`
	readHostNames  = `SELECT rev, name, uid, interface FROM interface_names WHERE ended = 0`
)

// writeNames stores what a step does to names.
func (s *store) writeNames(st step) error {
	if n := st.unnamed; n != nil {
		if _, err := s.sql.endHostName.Exec(st.change.Rev, n.Name, n.Rev); err != nil {
			return s.Classify("end interface name "+n.Name, err)
		}
	}
	if n := st.named; n != nil {
		if _, err := s.sql.insertHostName.Exec(n.Rev, n.Name, n.UID, n.Interface); err != nil {
			return s.Classify("store interface name "+n.Name, err)
		}
	}
	return nil
}

func scanHostName(s sqlite.Scanner) (n ipam.HostName, err error) {
	err = s.Scan(&n.Rev, &n.Name, &n.UID, &n.Interface)
	return n, err
}

func (x *index) readHostName(s sqlite.Scanner) error {
	n, err := scanHostName(s)
	x.hostNames[n.Name], x.hostNameOf[linkOf(&n)] = &n, &n
	return err
}

// HostName returns the host interface name that is leased to an interface of a sandbox,
// "" for none.
func (m *memory) HostName(uid, iface string) string {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if n := m.idx.hostNameOf[link{uid, iface}]; n != nil {
		return n.Name
	}
	return ""
}

// HostNames returns every name that is leased.
func (m *memory) HostNames() []ipam.HostName {
	m.mu.RLock()
	defer m.mu.RUnlock()
	out := make([]ipam.HostName, 0, len(m.idx.hostNames))
	for _, n := range m.idx.hostNames {
		out = append(out, *n)
	}
	slices.SortFunc(out, func(a, b ipam.HostName) int { return strings.Compare(a.Name, b.Name) })
	return out
}
