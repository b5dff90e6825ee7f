package netdb

import (
	"fmt"

	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/netdb/index"
	"github.com/ipamd/ipamd/netdb/sqlite"
)

// A Naming asks for a host interface name beside a lease. The zero value asks for none.
type Naming struct {
	Want string // a name, or a pattern like veth%d; "" for none
	Name string // the one to take, of those that [Book.Names] yields for it
}

// nameLink returns what to stage with the next change of a lease: the name that is given, nil
// where its interface has one already.
func nameLink(v *index.View, l *ipam.Lease, n Naming) (*ipam.HostName, error) {
	if n.Want == "" {
		return nil, nil
	}
	if has := v.HostNameOf(index.SandboxInterface{UID: l.UID, Interface: l.Interface}); has != nil {
		if !ipam.FitsHostName(n.Want, has.Name) {
			return nil, fmt.Errorf("host interface name %s: %w: sandbox %q has %s for %s", n.Want, ipam.ErrState, l.Sandbox, has.Name, l.Interface)
		}
		return nil, nil
	}
	if !ipam.FitsHostName(n.Want, n.Name) {
		return nil, ipam.Invalid("host_interface_name", "%.40q is not %s", n.Name, n.Want)
	}
	if has := v.HostNamed(n.Name); has != nil {
		return nil, fmt.Errorf("host interface name %s: %w: sandbox uid %q has it for %s", n.Name, ipam.ErrNameTaken, has.UID, has.Interface)
	}
	return &ipam.HostName{Name: n.Name, UID: l.UID, Interface: l.Interface, Rev: v.Rev() + 1}, nil
}

const (
	insertHostName = `INSERT INTO interface_names (rev, name, uid, interface, ended) VALUES (?,?,?,?,0)`
	endHostName    = `UPDATE interface_names SET ended = ? WHERE name = ? AND rev = ? AND ended = 0`
	pruneHostNames = `DELETE FROM interface_names WHERE rev <= ?1 AND ended > 0 AND ended <= ?1`
	readHostNames  = `SELECT rev, name, uid, interface FROM interface_names WHERE ended = 0`
)

// writeNames stores what a step does to names.
func (s *store) writeNames(st *index.Step) error {
	if n := st.HostNameEnded; n != nil {
		if _, err := s.sql.endHostName.Exec(st.Change.Rev, n.Name, n.Rev); err != nil {
			return s.Classify("end interface name "+n.Name, err)
		}
	}
	if n := st.HostNameGiven; n != nil {
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
