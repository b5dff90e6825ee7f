package netdb_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/ipamd/ipamd/ipam"
	. "github.com/ipamd/ipamd/netdb/netdbtest"
)

// F22: a bind adds. What it leaves out stays, and a container goes only when it
// is named as gone; the record has an end. Again is no change, and a lease that
// was released is refused.
func TestF22ABindAdds(t *testing.T) {
	b := Open(t)
	l := Reserve(t, b, "a")
	n := ipam.Binding{Containers: []ipam.Container{{Namespace: "default", ID: "c1"}}, Netns: "/run/netns/a", HostInterface: "veth1", MAC: "02-00-00-00-00-AA"}
	bound, err := b.Bind(ctx, client, l.ID, 0, n)
	if err != nil || bound.State != ipam.Bound || bound.MAC != "02:00:00:00:00:aa" {
		t.Fatal(bound, err)
	}
	if again, err := b.Bind(ctx, client, l.ID, 0, n); err != nil || again.Rev != bound.Rev {
		t.Fatal(again, err)
	}
	c := func(id string) ipam.Container { return ipam.Container{Namespace: "default", ID: id} }
	more, err := b.Bind(ctx, client, l.ID, 0, ipam.Binding{Containers: []ipam.Container{c("c2"), c("c2")}, MAC: "02:00:00:00:00:bb"})
	if err != nil || more.Rev == bound.Rev || more.Since != bound.Since || more.Netns != n.Netns || more.HostInterface != "veth1" ||
		more.MAC != "02:00:00:00:00:bb" || !slices.Equal(more.Containers, []ipam.Container{c("c1"), c("c2")}) {
		t.Fatal(more, err)
	}
	for _, part := range []ipam.Binding{{HostInterface: "veth1"}, {Containers: []ipam.Container{c("c1")}}, {Gone: []ipam.Container{c("c9")}}} {
		if again, err := b.Bind(ctx, client, l.ID, 0, part); err != nil || again.Rev != more.Rev {
			t.Errorf("%+v: %+v, %v", part, again, err)
		}
	}
	less, err := b.Bind(ctx, client, l.ID, 0, ipam.Binding{Gone: []ipam.Container{c("c1")}, Containers: []ipam.Container{c("c3")}})
	if err != nil || !slices.Equal(less.Containers, []ipam.Container{c("c2"), c("c3")}) {
		t.Fatal(less, err)
	}
	many := make([]ipam.Container, ipam.MaxContainers-1)
	for i := range many {
		many[i] = c(fmt.Sprint("many", i))
	}
	for name, wrong := range map[string]ipam.Binding{
		"too many with those of before": {Containers: many},
		"there and gone":                {Containers: []ipam.Container{c("c4")}, Gone: []ipam.Container{c("c4")}},
		"gone without a name":           {Gone: []ipam.Container{{Namespace: "default"}}},
	} {
		if _, err := b.Bind(ctx, client, l.ID, 0, wrong); !errors.Is(err, ipam.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	fresh := Reserve(t, b, "fresh")
	if _, err := b.Bind(ctx, client, fresh.ID, 0, ipam.Binding{Gone: []ipam.Container{c("c1")}}); !errors.Is(err, ipam.ErrInvalid) {
		t.Errorf("a first bind that only takes away: %v", err)
	}
	if p, err := b.Pause(ctx, client, l.ID, 0); err != nil || p.State != ipam.Paused {
		t.Fatal(p, err)
	}
	if r, err := b.Resume(ctx, client, l.ID, 0); err != nil || r.State != ipam.Bound || len(r.Containers) != 2 {
		t.Fatal(r, err)
	}
	_, err = b.Release(ctx, client, l.ID, "another incarnation", 0)
	wantErr(t, err, ipam.ErrInvalid)
	if r, err := b.Release(ctx, client, l.ID, "a", 0); err != nil || r.State != ipam.Releasing {
		t.Fatal(r, err)
	}
	_, err = b.Bind(ctx, client, l.ID, 0, n)
	wantErr(t, err, ipam.ErrState)
	_, err = b.Confirm(ctx, watchdog, l.ID, less.Rev, nil)
	wantErr(t, err, ipam.ErrStale)
	_, err = b.Confirm(ctx, client, l.ID, b.Rev(), nil)
	wantErr(t, err, ipam.ErrState)
}

// F7: a step applies to the lease as it was seen, and to no later one: each
// once at its revision. Said again it is the same and no error, whatever the
// revision; anything else is stale by then, and names the present revision.
func TestF7StepsNameTheirRevision(t *testing.T) {
	ctx, who := context.Background(), Who(ipam.ByReconciler, "seen_running")
	b := Open(t)
	binding := ipam.Binding{Containers: []ipam.Container{{Namespace: "default", ID: "c1"}}, HostInterface: "veth1"}
	steps := []struct {
		name string
		do   func(id string, rev int64) (*ipam.Lease, error)
		to   ipam.State
	}{
		{"bind", func(id string, rev int64) (*ipam.Lease, error) { return b.Bind(ctx, who, id, rev, binding) }, ipam.Bound},
		{"pause", func(id string, rev int64) (*ipam.Lease, error) { return b.Pause(ctx, who, id, rev) }, ipam.Paused},
		{"resume", func(id string, rev int64) (*ipam.Lease, error) { return b.Resume(ctx, who, id, rev) }, ipam.Bound},
	}
	l := Reserve(t, b, "a")
	for _, s := range steps {
		if _, err := s.do(l.ID, l.Rev-1); !errors.Is(err, ipam.ErrStale) {
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
	var stale *ipam.StaleError
	if _, err := b.Bind(ctx, who, l.ID, l.Rev-1, ipam.Binding{MAC: "02:00:00:00:00:01"}); !errors.As(err, &stale) || stale.Lease.Rev != rev {
		t.Errorf("bind by what was seen before: %v", err)
	}
	if _, err := b.Pause(ctx, who, l.ID, l.Rev-1); !errors.As(err, &stale) || stale.Lease.Rev != rev {
		t.Errorf("pause by what was seen before: %v", err)
	}
	if _, err := b.Release(ctx, who, l.ID, "", l.Rev-1); !errors.As(err, &stale) || stale.Lease.Rev != rev {
		t.Errorf("release by what was seen before: %v", err)
	}
	if _, err := b.Bind(ctx, who, l.ID, l.Rev, ipam.Binding{}); !errors.Is(err, ipam.ErrInvalid) {
		t.Errorf("bind to nothing: %v", err)
	}
	cool := Cool(t, b, l)
	for _, s := range steps {
		if _, err := s.do(cool.ID, cool.Rev); !errors.Is(err, ipam.ErrState) {
			t.Errorf("%s what cools: %v", s.name, err)
		}
	}
	if got, _ := b.At(l.Addr); got.Rev != b.Rev() || got.Rev != rev+2 || got.State != ipam.Cooling {
		t.Errorf("it is %s at %d, want cooling at %d", got.State, got.Rev, rev+2)
	}
}

// What a lease was seen by stays with what it names: a bind that adds to it, or says the same
// again, does not take that back, and one that names another port or namespace does.
func TestWhatWasSeenStaysWithWhatIsNamed(t *testing.T) {
	unseen, behind := ipam.Plug{Boot: "one", Unseen: true}, ipam.Plug{Boot: "one", Behind: 7}
	port := ipam.Binding{HostInterface: "veth1", Plug: ipam.Plug{Boot: "one", Index: 3}}
	space := ipam.Binding{Netns: "/run/netns/a", Plug: ipam.Plug{Boot: "one", Inode: 9, Behind: 7}}
	with := func(n ipam.Binding, p ipam.Plug) ipam.Binding { n.Plug = p; return n }
	mac := ipam.Binding{MAC: "02:00:00:00:00:01", Plug: unseen}
	found := func(index int, at time.Duration) ipam.Plug { return ipam.Plug{Boot: "one", Index: index, At: at} }
	for name, tt := range map[string]struct {
		binds []ipam.Binding
		want  ipam.Plug
	}{
		"nothing is there":                  {[]ipam.Binding{mac}, unseen},
		"a port":                            {[]ipam.Binding{port}, port.Plug},
		"a port, then a MAC":                {[]ipam.Binding{port, mac}, port.Plug},
		"a namespace, then a MAC":           {[]ipam.Binding{space, mac}, space.Plug},
		"a port that has gone, again":       {[]ipam.Binding{port, with(port, unseen)}, ipam.Plug{Boot: "one"}},
		"a port that came, not looked up":   {[]ipam.Binding{with(port, unseen), {Seen: true, Plug: ipam.Plug{Boot: "one"}}}, ipam.Plug{Boot: "one"}},
		"a port that was not there":         {[]ipam.Binding{with(port, unseen), port}, port.Plug},
		"a port that is found again":        {[]ipam.Binding{with(port, found(3, 1)), with(port, found(3, 2))}, found(3, 1)},
		"another link of its name":          {[]ipam.Binding{with(port, found(3, 1)), with(port, found(4, 2))}, found(4, 2)},
		"a port that is taken back":         {[]ipam.Binding{with(port, found(3, 1)), {HostInterface: port.HostInterface, Plug: found(3, 2), Takes: true}}, found(3, 2)},
		"a MAC that none looked for, again": {[]ipam.Binding{{MAC: mac.MAC}, mac}, unseen},
		"a MAC that is seen":                {[]ipam.Binding{mac, {Seen: true, Plug: behind}}, behind},
		"a MAC that was seen, again":        {[]ipam.Binding{mac, {Seen: true, Plug: behind}, mac}, behind},
		"a MAC that was seen, another's":    {[]ipam.Binding{mac, {Seen: true, Plug: behind}, {MAC: "02:00:00:00:00:02", Plug: unseen}}, unseen},
		"a port that was seen, another":     {[]ipam.Binding{port, {HostInterface: "veth2", Plug: unseen}}, unseen},
		"another namespace, beside any":     {[]ipam.Binding{space, {Netns: "/run/netns/b", Plug: unseen}}, unseen},
		"seen, and in another boot named":   {[]ipam.Binding{port, with(port, ipam.Plug{Boot: "two", Unseen: true})}, ipam.Plug{Boot: "two", Unseen: true}},
	} {
		t.Run(name, func(t *testing.T) {
			b := Open(t)
			Pool(t, b, "default", "10.8.64.0/24")
			l := Reserve(t, b, "a")
			for _, n := range tt.binds {
				var err error
				if l, err = b.Bind(t.Context(), Who(ipam.ByClient, "bound"), l.ID, 0, n); err != nil {
					t.Fatal(err)
				}
			}
			if l.Plug != tt.want {
				t.Errorf("it is %+v, want %+v", l.Plug, tt.want)
			}
		})
	}
}
