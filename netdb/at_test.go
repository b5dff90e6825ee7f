package netdb_test

import (
	"context"
	"errors"
	"testing"

	"github.com/ipamd/ipamd/netdb"
	. "github.com/ipamd/ipamd/netdb/netdbtest"
)

// F7: a step applies to the lease as it was seen, and to no later one: each
// once at its revision. Said again it is the same and no error, whatever the
// revision; anything else is stale by then, and names the present revision.
func TestF7StepsNameTheirRevision(t *testing.T) {
	ctx, who := context.Background(), Who(netdb.ByReconciler, "seen_running")
	b := Open(t)
	binding := netdb.Binding{Containers: []netdb.Container{{Namespace: "default", ID: "c1"}}, HostInterface: "veth1"}
	steps := []struct {
		name string
		do   func(id string, rev int64) (*netdb.Lease, error)
		to   netdb.State
	}{
		{"bind", func(id string, rev int64) (*netdb.Lease, error) { return b.Bind(ctx, who, id, rev, binding) }, netdb.Bound},
		{"pause", func(id string, rev int64) (*netdb.Lease, error) { return b.Pause(ctx, who, id, rev) }, netdb.Paused},
		{"resume", func(id string, rev int64) (*netdb.Lease, error) { return b.Resume(ctx, who, id, rev) }, netdb.Bound},
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
		if again, err := s.do(l.ID, l.Rev); err != nil || again.Rev != now.Rev {
			t.Errorf("%s again: %+v, %v", s.name, again, err)
		}
		l = now
	}
	rev := b.Rev()
	var stale *netdb.StaleError
	if _, err := b.Bind(ctx, who, l.ID, l.Rev-1, netdb.Binding{MAC: "02:00:00:00:00:01"}); !errors.As(err, &stale) || stale.Lease.Rev != rev {
		t.Errorf("bind by what was seen before: %v", err)
	}
	if _, err := b.Pause(ctx, who, l.ID, l.Rev-1); !errors.As(err, &stale) || stale.Lease.Rev != rev {
		t.Errorf("pause by what was seen before: %v", err)
	}
	if _, err := b.Release(ctx, who, l.ID, "", l.Rev-1); !errors.As(err, &stale) || stale.Lease.Rev != rev {
		t.Errorf("release by what was seen before: %v", err)
	}
	if _, err := b.Bind(ctx, who, l.ID, l.Rev, netdb.Binding{}); !errors.Is(err, netdb.ErrInvalid) {
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
