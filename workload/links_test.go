package workload_test

import (
	"testing"
	"time"

	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/workload"
)

// TestWhoseALinkIs: leases of two sandboxes record one link. It is that of the later one.
func TestWhoseALinkIs(t *testing.T) {
	t.Parallel()
	lease := func(uid, name string, at time.Duration) *ipam.Lease {
		return &ipam.Lease{UID: uid, State: ipam.Bound, HostInterface: name, Plug: ipam.Plug{Boot: "now", Index: 3, At: at}}
	}
	with := func(l *ipam.Lease, change func(*ipam.Lease)) *ipam.Lease { change(l); return l }
	behind := func(l *ipam.Lease) { l.Plug.Index, l.Plug.Behind = 0, 3 }
	for what, c := range map[string]struct {
		name   string // of the link now
		a, b   *ipam.Lease
		others []*ipam.Lease
		has    [2]bool // a, b
	}{
		"used again":                          {"b0", lease("a", "a0", 1), lease("b", "b0", 2), nil, [2]bool{false, true}},
		"renamed to what it was":              {"a0", lease("a", "a0", 1), lease("b", "b0", 2), nil, [2]bool{false, true}},
		"passed on with its name":             {"tap0", lease("a", "tap0", 1), lease("b", "tap0", 2), nil, [2]bool{false, true}},
		"since is not known of one":           {"b0", lease("a", "a0", 0), lease("b", "b0", 2), nil, [2]bool{false, true}},
		"since is not known, a name is":       {"b0", lease("a", "a0", 0), lease("b", "b0", 0), nil, [2]bool{false, true}},
		"neither is known":                    {"tap0", lease("a", "tap0", 0), lease("b", "tap0", 0), nil, [2]bool{true, true}},
		"of one sandbox":                      {"b0", lease("a", "b0", 1), lease("a", "b0", 2), nil, [2]bool{true, true}},
		"and the other family is later still": {"b0", lease("a", "b0", 1), lease("b", "b0", 2), []*ipam.Lease{lease("a", "b0", 3)}, [2]bool{true, false}},
		"the later has ended":                 {"b0", lease("a", "a0", 1), with(lease("b", "b0", 2), func(l *ipam.Lease) { l.State = ipam.Cooling }), nil, [2]bool{true, true}},
		"the later is of another boot":        {"b0", lease("a", "a0", 1), with(lease("b", "c0", 2), func(l *ipam.Lease) { l.Plug.Boot = "then" }), nil, [2]bool{true, false}},
		"another is seen behind it since":     {"a0", lease("a", "a0", 1), with(lease("b", "", 2), behind), nil, [2]bool{true, false}},
		"and it has another name":             {"b0", lease("a", "a0", 1), with(lease("b", "", 2), behind), nil, [2]bool{false, false}},
		"the later is not known by its link":  {"b0", lease("a", "a0", 1), with(lease("b", "b0", 0), func(l *ipam.Lease) { l.Plug.Index = 0 }), nil, [2]bool{true, false}},
	} {
		recorded := workload.RecordedBy(append(c.others, c.a, c.b), "now")
		if got := [2]bool{recorded.Has(c.a, 3, c.name), recorded.Has(c.b, 3, c.name)}; got != c.has {
			t.Errorf("%s: the link is a's %v, and b's %v", what, got[0], got[1])
		}
	}
}

// TestWhoseAnUnrecordedLinkIs: a lease names a link, or was never seen, and others record the index.
func TestWhoseAnUnrecordedLinkIs(t *testing.T) {
	t.Parallel()
	l := &ipam.Lease{UID: "l", State: ipam.Bound, HostInterface: "l0", Plug: ipam.Plug{Boot: "now", Index: 9, At: 5}}
	other := ipam.Lease{UID: "o", State: ipam.Bound, HostInterface: "o0", Plug: ipam.Plug{Boot: "now", Index: 3, At: 9}}
	like := func(change func(*ipam.Lease)) *ipam.Lease { o := other; change(&o); return &o }
	for what, c := range map[string]struct {
		name  string
		other *ipam.Lease
		want  workload.Owner
	}{
		"no other does":              {"l0", like(func(o *ipam.Lease) { o.Plug.Index = 4 }), workload.Own},
		"one that has ended":         {"o0", like(func(o *ipam.Lease) { o.State = ipam.Cooling }), workload.Own},
		"in another boot":            {"o0", like(func(o *ipam.Lease) { o.Plug.Boot = "then" }), workload.Own},
		"of its sandbox":             {"o0", like(func(o *ipam.Lease) { o.UID = "l" }), workload.Own},
		"under the name of now":      {"o0", &other, workload.Anothers},
		"under a name of before":     {"l0", &other, workload.Unclear},
		"one that is seen behind":    {"l0", like(func(o *ipam.Lease) { o.HostInterface, o.Plug = "", ipam.Plug{Boot: "now", Behind: 3, At: 9} }), workload.Unclear},
		"one that is being released": {"o0", like(func(o *ipam.Lease) { o.State = ipam.Releasing }), workload.Anothers},
	} {
		if got := workload.RecordedBy([]*ipam.Lease{c.other, l}, "now").Whose(l, 3, c.name); got != c.want {
			t.Errorf("%s: %v, want %v", what, got, c.want)
		}
	}
}
