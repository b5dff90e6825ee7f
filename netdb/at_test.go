package netdb_test

import (
	"context"
	"errors"
	"testing"

	"github.com/ipamd/ipamd/netdb"
	. "github.com/ipamd/ipamd/netdb/netdbtest"
)

// A step of the reconciler applies to the lease as it was seen, and to no
// later one: each once at its revision, then stale; in another state, refused.
func TestStepsNameTheirRevision(t *testing.T) {
	ctx, who := context.Background(), Who(netdb.ByReconciler, "seen_running")
	b := Open(t)
	binding := netdb.Binding{Containers: []netdb.Container{{Namespace: "default", ID: "c1"}}, HostInterface: "veth1"}
	steps := []struct {
		name string
		do   func(id string, rev int64) (*netdb.Lease, error)
		to   netdb.State
	}{
		{"bind", func(id string, rev int64) (*netdb.Lease, error) { return b.BindAt(ctx, who, id, rev, binding) }, netdb.Bound},
		{"pause", func(id string, rev int64) (*netdb.Lease, error) { return b.PauseAt(ctx, who, id, rev) }, netdb.Paused},
		{"resume", func(id string, rev int64) (*netdb.Lease, error) { return b.ResumeAt(ctx, who, id, rev) }, netdb.Bound},
	}
	l := Reserve(t, b, "a")
	for _, s := range steps {
		if _, err := s.do(l.ID, l.Rev-1); !errors.Is(err, netdb.ErrStale) {
			t.Errorf("%s at an older revision: %v", s.name, err)
		}
		now, err := s.do(l.ID, l.Rev)
		if err != nil || now.State != s.to || now.ID != l.ID || now.HostInterface != "veth1" {
			t.Fatalf("%s: %+v, %v", s.name, now, err)
		}
		if _, err := s.do(l.ID, l.Rev); !errors.Is(err, netdb.ErrStale) {
			t.Errorf("%s again: %v", s.name, err)
		}
		l = now
	}
	rev := b.Rev()
	if _, err := b.BindAt(ctx, who, l.ID, l.Rev, binding); !errors.Is(err, netdb.ErrState) {
		t.Errorf("bind what is bound: %v", err)
	}
	if _, err := b.BindAt(ctx, who, l.ID, l.Rev, netdb.Binding{}); !errors.Is(err, netdb.ErrInvalid) {
		t.Errorf("bind to nothing: %v", err)
	}
	cool := Cool(t, b, l)
	for _, s := range steps {
		if _, err := s.do(cool.ID, cool.Rev); !errors.Is(err, netdb.ErrState) {
			t.Errorf("%s what cools: %v", s.name, err)
		}
	}
	if got, _ := b.At(l.Addr); got.Rev != b.Rev() || got.Rev != rev+2 || got.State != netdb.Cooling {
		t.Errorf("it is %s at %d, want cooling at %d", got.State, got.Rev, rev+2)
	}
}
