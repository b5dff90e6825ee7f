package watchdog_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ipamd/ipamd/internal/ctrdtest"
	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/netdb"
	"github.com/ipamd/ipamd/netdb/netdbtest"
)

// reserved makes a lease in any pool, of any incarnation, on any interface.
func (s *scene) reserved(pool *ipam.Pool, sandbox, uid, iface string) *ipam.Lease {
	s.Helper()
	c, err := s.book.Pick(pool.UID, netdbtest.Policy)
	s.check(err)
	defer s.book.Drop(c)
	ls, err := s.book.Reserve(ctx, netdbtest.Who(ipam.ByAllocator, "allocated"), netdb.Reservation{
		Candidate: c, Sandbox: sandbox, UID: uid, Interface: iface, Attempt: 1, BindWithin: 10 * time.Minute})
	s.check(err)
	return ls[0]
}

// leased makes a bound one.
func (s *scene) leased(pool *ipam.Pool, name, uid, iface string, n ipam.Binding) *sandbox {
	s.Helper()
	l, err := s.book.Bind(ctx, client, s.reserved(pool, name, uid, iface).ID, 0, n)
	s.check(err)
	return &sandbox{name: name, lease: l}
}

// A port that a lease records keeps its address for as long as it is a port,
// another lease records it later: another sandbox, or the same one for another
// interface or another family. Only a successor, which is known to have another link
// of the name, takes it over.
func TestARecordedPortKeepsTheAddressThoughAnotherHasIt(t *testing.T) {
	d := ctrdtest.Start(t, ctrdtest.V2)
	s := newScene(t, d)
	four, six := s.book.Pools()[0], netdbtest.Pool(t, s.book, "six", "fd00:8::/64")
	for name, tt := range map[string]struct {
		of                  string
		pool                *ipam.Pool
		sandbox, uid, iface string
		inherits            bool
	}{
		"another sandbox":     {"a1", four, "other", "other", "eth0", false},
		"its other interface": {"a2", four, "a2", "a2", "eth1", false},
		"its other family":    {"a3", six, "a3", "a3", "eth0", false},
		"a successor":         {"a4", four, "a4", "next", "eth0", true},
		"one of the old link": {"a5", four, "a5", "last", "eth0", false},
	} {
		p := s.ns.Port("rt0")
		n := ipam.Binding{HostInterface: p.HostName, Netns: p.NS.Path(), Plug: ipam.Plug{Boot: "one", Index: 7, Inode: 70}}
		a := s.leased(four, tt.of, tt.of, "eth0", n)
		if tt.inherits {
			n.Plug = ipam.Plug{Boot: "one", Index: 8, Inode: 80}
		}
		b := s.leased(tt.pool, tt.sandbox, tt.uid, tt.iface, n)
		s.release(a)
		if tt.inherits {
			s.cools(a)
			continue
		}
		if got := s.blocked(a, "port"); !strings.HasPrefix(got, p.HostName+" is a port") {
			t.Errorf("%s: blocked because %q", name, got)
		}
		if l := s.now(b); l.State != ipam.Bound {
			t.Errorf("%s: it is %s", name, l.State)
		}
		p.Close()
		s.cools(a)
	}
}

// A container's id is used again for each incarnation of a sandbox: the old
// leases cool, though they record the id of one that lives.
func TestAContainerIDIsUsedAgain(t *testing.T) {
	ctrdtest.One(t, func(t *testing.T, d *ctrdtest.Daemon) {
		s := newScene(t, d)
		var old []*sandbox
		b := s.running("job", "job")
		for i := range 4 {
			s.release(b)
			s.d.Delete(t, space, "job")
			next := &sandbox{name: "job", lease: s.reserved(s.book.Pools()[0], "job", fmt.Sprint("job-", i), "eth0")}
			s.d.Create(t, ctrdtest.Spec{Namespace: space, ID: "job", Labels: s.labels(next)})
			s.bind(next, "job")
			old, b = append(old, b), next
		}
		for _, o := range old {
			s.cools(o)
		}
		if l := s.now(b); l.State != ipam.Bound {
			t.Errorf("the last one is %s", l.State)
		}
		s.release(b)
		s.blocked(b, "container")
	})
}

// Two incarnations of a sandbox live side by side, and no lease label says
// their containers apart: each one's release waits for its own, and for what
// names no incarnation.
func TestR8IncarnationsByTheirUIDLabel(t *testing.T) {
	ctrdtest.One(t, func(t *testing.T, d *ctrdtest.Daemon) {
		s := newScene(t, d)
		pool := s.book.Pools()[0]
		run := func(id, uid string) {
			labels := map[string]string{"runtime.computer/entity-id": "a"}
			if uid != "" {
				labels["ipamd.dev/uid"] = uid
			}
			d.Create(t, ctrdtest.Spec{Namespace: space, ID: id, Labels: labels})
			s.eventually("the board shows "+id, func() bool { return s.onBoard(id) })
		}
		bound := func(uid string, ids ...string) *sandbox {
			n := ipam.Binding{HostInterface: "veth-" + uid}
			for _, id := range ids {
				n.Containers = append(n.Containers, ipam.Container{Namespace: space, ID: id})
			}
			return s.leased(pool, "a", uid, "eth0", n)
		}
		run("c1", "u1")
		u1 := bound("u1", "c1")
		u2 := bound("u2")
		run("c2", "u2")
		s.release(u1)
		s.blocked(u1, "container")
		d.Delete(t, space, "c1")
		s.cools(u1)

		u3 := bound("u3")
		run("c3", "u3")
		s.release(u2)
		if got := s.blocked(u2, "container"); !strings.Contains(got, "c2") {
			t.Errorf("u2 waits since %s", got)
		}
		d.Delete(t, space, "c2")
		s.cools(u2)

		run("any", "")
		d.Delete(t, space, "c3")
		s.release(u3)
		if got := s.blocked(u3, "container"); !strings.Contains(got, "any") {
			t.Errorf("u3 waits since %s", got)
		}
		d.Delete(t, space, "any")
		s.cools(u3)
	})
}
