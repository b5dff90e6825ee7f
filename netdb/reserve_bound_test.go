package netdb_test

import (
	"errors"
	"testing"
	"time"

	"github.com/ipamd/ipamd/netdb"
	. "github.com/ipamd/ipamd/netdb/netdbtest"
)

// A reservation that is bound at once is both changes of one commit, or neither.
func TestReserveBinds(t *testing.T) {
	b := Open(t)
	p := b.Pools()[0]
	give := func(sandbox string, where netdb.Binding) (*netdb.Lease, error) {
		c, err := b.Pick(p.UID, Policy)
		if err != nil {
			t.Fatal(err)
		}
		defer b.Drop(c)
		ls, err := b.Reserve(ctx, Who(netdb.ByAllocator, "allocated"), netdb.Reservation{Candidate: c, Sandbox: sandbox, UID: sandbox,
			Interface: "eth0", Attempt: 1, BindWithin: time.Minute, Binding: &where, BoundBy: Who(netdb.ByClient, "bound")})
		if err != nil {
			return nil, err
		}
		return ls[0], nil
	}
	l, err := give("a", netdb.Binding{Netns: "/run/netns/a", HostInterface: "vetha", MAC: "02:00:00:00:00:0A"})
	if err != nil {
		t.Fatal(err)
	}
	if l.State != netdb.Bound || l.Netns != "/run/netns/a" || l.HostInterface != "vetha" || l.MAC != "02:00:00:00:00:0a" {
		t.Errorf("bound as %+v", l)
	}
	rev := b.Rev()
	for field, where := range map[string]netdb.Binding{
		"mac":        {MAC: "01:00:00:00:00:0a"},
		"netns":      {Netns: "relative"},
		"containers": {},
	} {
		wrong := new(netdb.FieldError)
		if l, err := give("b", where); !errors.As(err, &wrong) || wrong.Field != field {
			t.Errorf("bound by a wrong %s: %+v, %v", field, l, err)
		}
	}
	// What the bind is refused for in the transaction takes the reservation back.
	if _, _, err := reserveNamed(b, p, "named", "eth0", netdb.Naming{Want: "vethn", Name: "vethn"}); err != nil {
		t.Fatal(err)
	}
	rev++
	if l, err := give("b", netdb.Binding{HostInterface: "vethn"}); !errors.Is(err, netdb.ErrNameTaken) {
		t.Errorf("bound to another's name: %+v, %v", l, err)
	}
	if b.Rev() != rev {
		t.Errorf("the book is at revision %d, and was at %d before what it refused", b.Rev(), rev)
	}
}
