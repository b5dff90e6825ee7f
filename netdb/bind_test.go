package netdb_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/ipamd/ipamd/netdb"
	. "github.com/ipamd/ipamd/netdb/netdbtest"
)

// F22: a bind adds. What it leaves out stays, and a container goes only when it
// is named as gone; the record has an end. Again is no change, and a lease that
// was released is refused.
func TestF22ABindAdds(t *testing.T) {
	b := Open(t)
	l := Reserve(t, b, "a")
	n := netdb.Binding{Containers: []netdb.Container{{Namespace: "default", ID: "c1"}}, Netns: "/run/netns/a", HostInterface: "veth1", MAC: "02-00-00-00-00-AA"}
	bound, err := b.Bind(ctx, client, l.ID, 0, n)
	if err != nil || bound.State != netdb.Bound || bound.MAC != "02:00:00:00:00:aa" {
		t.Fatal(bound, err)
	}
	if again, err := b.Bind(ctx, client, l.ID, 0, n); err != nil || again.Rev != bound.Rev {
		t.Fatal(again, err)
	}
	c := func(id string) netdb.Container { return netdb.Container{Namespace: "default", ID: id} }
	more, err := b.Bind(ctx, client, l.ID, 0, netdb.Binding{Containers: []netdb.Container{c("c2"), c("c2")}, MAC: "02:00:00:00:00:bb"})
	if err != nil || more.Rev == bound.Rev || more.Since != bound.Since || more.Netns != n.Netns || more.HostInterface != "veth1" ||
		more.MAC != "02:00:00:00:00:bb" || !slices.Equal(more.Containers, []netdb.Container{c("c1"), c("c2")}) {
		t.Fatal(more, err)
	}
	for _, part := range []netdb.Binding{{HostInterface: "veth1"}, {Containers: []netdb.Container{c("c1")}}, {Gone: []netdb.Container{c("c9")}}} {
		if again, err := b.Bind(ctx, client, l.ID, 0, part); err != nil || again.Rev != more.Rev {
			t.Errorf("%+v: %+v, %v", part, again, err)
		}
	}
	less, err := b.Bind(ctx, client, l.ID, 0, netdb.Binding{Gone: []netdb.Container{c("c1")}, Containers: []netdb.Container{c("c3")}})
	if err != nil || !slices.Equal(less.Containers, []netdb.Container{c("c2"), c("c3")}) {
		t.Fatal(less, err)
	}
	many := make([]netdb.Container, netdb.MaxContainers-1)
	for i := range many {
		many[i] = c(fmt.Sprint("many", i))
	}
	for name, wrong := range map[string]netdb.Binding{
		"too many with those of before": {Containers: many},
		"there and gone":                {Containers: []netdb.Container{c("c4")}, Gone: []netdb.Container{c("c4")}},
		"gone without a name":           {Gone: []netdb.Container{{Namespace: "default"}}},
	} {
		if _, err := b.Bind(ctx, client, l.ID, 0, wrong); !errors.Is(err, netdb.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	fresh := Reserve(t, b, "fresh")
	if _, err := b.Bind(ctx, client, fresh.ID, 0, netdb.Binding{Gone: []netdb.Container{c("c1")}}); !errors.Is(err, netdb.ErrInvalid) {
		t.Errorf("a first bind that only takes away: %v", err)
	}
	if p, err := b.Pause(ctx, client, l.ID, 0); err != nil || p.State != netdb.Paused {
		t.Fatal(p, err)
	}
	if r, err := b.Resume(ctx, client, l.ID, 0); err != nil || r.State != netdb.Bound || len(r.Containers) != 2 {
		t.Fatal(r, err)
	}
	_, err = b.Release(ctx, client, l.ID, "another incarnation", 0)
	wantErr(t, err, netdb.ErrInvalid)
	if r, err := b.Release(ctx, client, l.ID, "a", 0); err != nil || r.State != netdb.Releasing {
		t.Fatal(r, err)
	}
	_, err = b.Bind(ctx, client, l.ID, 0, n)
	wantErr(t, err, netdb.ErrState)
	_, err = b.Confirm(ctx, watchdog, l.ID, less.Rev, nil)
	wantErr(t, err, netdb.ErrStale)
	_, err = b.Confirm(ctx, client, l.ID, b.Rev(), nil)
	wantErr(t, err, netdb.ErrState)
}

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

// What a lease was seen by stays with what it names: a bind that adds to it, or says the same
// again, does not take that back, and one that names another port or namespace does.
func TestWhatWasSeenStaysWithWhatIsNamed(t *testing.T) {
	unseen, behind := netdb.Plug{Boot: "one", Unseen: true}, netdb.Plug{Boot: "one", Behind: 7}
	port := netdb.Binding{HostInterface: "veth1", Plug: netdb.Plug{Boot: "one", Index: 3}}
	space := netdb.Binding{Netns: "/run/netns/a", Plug: netdb.Plug{Boot: "one", Inode: 9, Behind: 7}}
	with := func(n netdb.Binding, p netdb.Plug) netdb.Binding { n.Plug = p; return n }
	mac := netdb.Binding{MAC: "02:00:00:00:00:01", Plug: unseen}
	found := func(index int, at time.Duration) netdb.Plug { return netdb.Plug{Boot: "one", Index: index, At: at} }
	for name, tt := range map[string]struct {
		binds []netdb.Binding
		want  netdb.Plug
	}{
		"nothing is there":                  {[]netdb.Binding{mac}, unseen},
		"a port":                            {[]netdb.Binding{port}, port.Plug},
		"a port, then a MAC":                {[]netdb.Binding{port, mac}, port.Plug},
		"a namespace, then a MAC":           {[]netdb.Binding{space, mac}, space.Plug},
		"a port that has gone, again":       {[]netdb.Binding{port, with(port, unseen)}, netdb.Plug{Boot: "one"}},
		"a port that came, not looked up":   {[]netdb.Binding{with(port, unseen), {Seen: true, Plug: netdb.Plug{Boot: "one"}}}, netdb.Plug{Boot: "one"}},
		"a port that was not there":         {[]netdb.Binding{with(port, unseen), port}, port.Plug},
		"a port that is found again":        {[]netdb.Binding{with(port, found(3, 1)), with(port, found(3, 2))}, found(3, 1)},
		"another link of its name":          {[]netdb.Binding{with(port, found(3, 1)), with(port, found(4, 2))}, found(4, 2)},
		"a port that is taken back":         {[]netdb.Binding{with(port, found(3, 1)), {HostInterface: port.HostInterface, Plug: found(3, 2), Takes: true}}, found(3, 2)},
		"a MAC that none looked for, again": {[]netdb.Binding{{MAC: mac.MAC}, mac}, unseen},
		"a MAC that is seen":                {[]netdb.Binding{mac, {Seen: true, Plug: behind}}, behind},
		"a MAC that was seen, again":        {[]netdb.Binding{mac, {Seen: true, Plug: behind}, mac}, behind},
		"a MAC that was seen, another's":    {[]netdb.Binding{mac, {Seen: true, Plug: behind}, {MAC: "02:00:00:00:00:02", Plug: unseen}}, unseen},
		"a port that was seen, another":     {[]netdb.Binding{port, {HostInterface: "veth2", Plug: unseen}}, unseen},
		"another namespace, beside any":     {[]netdb.Binding{space, {Netns: "/run/netns/b", Plug: unseen}}, unseen},
		"seen, and in another boot named":   {[]netdb.Binding{port, with(port, netdb.Plug{Boot: "two", Unseen: true})}, netdb.Plug{Boot: "two", Unseen: true}},
	} {
		t.Run(name, func(t *testing.T) {
			b := Open(t)
			Pool(t, b, "default", "10.8.64.0/24")
			l := Reserve(t, b, "a")
			for _, n := range tt.binds {
				var err error
				if l, err = b.Bind(t.Context(), Who(netdb.ByClient, "bound"), l.ID, 0, n); err != nil {
					t.Fatal(err)
				}
			}
			if l.Plug != tt.want {
				t.Errorf("it is %+v, want %+v", l.Plug, tt.want)
			}
		})
	}
}
