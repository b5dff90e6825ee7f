package binding

import (
	"context"
	"encoding/json"
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/ipamd/ipamd/allocator"
	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/ipam"
	. "github.com/ipamd/ipamd/netdb/netdbtest"
	"github.com/ipamd/ipamd/workload"
)

// ports is a kernel that has links of these names, all of them ports of the bridge.
type ports struct {
	Kernel
	there map[string]bool
	fails error // to say which they are
	shut  bool  // the bridge is not open
}

func (p ports) PortNames() map[string]bool { return p.there }

func (p ports) PlugOf(_ context.Context, hostInterface, _ string) (int, uint64, error) {
	if p.there[hostInterface] && p.fails == nil {
		return 7, 0, nil
	}
	return 0, 0, p.fails
}

func (p ports) PortsInto(_ context.Context, of ...census.RecordedNetns) []census.Into {
	into := census.Into{Err: p.fails}
	if p.fails == nil && p.there[of[0].Path] && of[0].Inode == 9 {
		if into.Ports = []int{7}; p.shut {
			into.Ports, into.Unopened = nil, into.Ports
		}
	}
	return []census.Into{into}
}

func (p ports) IsPort(_ context.Context, hostInterface string, _ int) (bool, error) {
	return p.there[hostInterface], p.fails
}

// A pass finds a lease's port on the bridge, and the port goes before the pass has recorded that: its
// sandbox ended just then. It was seen, so its absence counts from now on. A lease that a pass
// finds nothing of was not.
func TestAPortThatGoesAsItIsRecordedWasSeen(t *testing.T) {
	boot := ipam.Now().BootID
	for name, tt := range map[string]struct {
		plug  ipam.Plug // as the lease was bound
		there bool      // its port is, as the pass looks
		seen  bool
	}{
		"bound in another boot":                    {ipam.Plug{Boot: "another", Index: 3}, true, true},
		"bound before its port came":               {ipam.Plug{Boot: boot, Unseen: true}, true, true},
		"bound while its link was no port":         {ipam.Plug{Boot: boot, Index: 7, Unseen: true}, true, true},
		"the kernel did not say what it is":        {ipam.Plug{Boot: boot, Unseen: true, Unsaid: ipam.Now().Boottime}, true, true},
		"the kernel did not say which space it is": {ipam.Plug{Boot: boot, Index: 7, Unseen: true, Unsaid: ipam.Now().Boottime}, true, true},
		"no port, and the kernel did not say":      {ipam.Plug{Boot: boot, Unseen: true, Unsaid: ipam.Now().Boottime}, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			b := Open(t)
			Pool(t, b, "default", "10.8.64.0/24")
			where := ipam.Binding{HostInterface: "port1", Netns: "/run/netns/1", Plug: tt.plug}
			l, err := b.Bind(t.Context(), Who(ipam.ByClient, "bound"), Reserve(t, b, "a").ID, 0, where)
			if err != nil {
				t.Fatal(err)
			}
			found := UnrecordedPlumbing(ports{there: map[string]bool{"port1": tt.there}})(l)
			if found.HostInterface == "" && found.Netns == "" {
				t.Fatalf("nothing of it is to be recorded: %+v", found)
			}
			l, err = ResolvingBook{Book: b, Kernel: ports{}}.Bind(t.Context(), Who(ipam.ByReconciler, "seen_plugged"), l.ID, l.Rev, found)
			if err != nil {
				t.Fatal(err)
			}
			if workload.NeverSeen(l, boot) == tt.seen {
				t.Errorf("seen: want %t, and it is %+v", tt.seen, l.Plug)
			}
		})
	}
}

// A pass records nothing of a lease whose plumbing is known, or of which nothing is there.
func TestWhatIsKnownIsNotRecordedAgain(t *testing.T) {
	boot := ipam.Now().BootID
	for name, l := range map[string]*ipam.Lease{
		"its port is known":                 {HostInterface: "port1", Plug: ipam.Plug{Boot: boot, Index: 7}},
		"no port of its name":               {HostInterface: "port2", Plug: ipam.Plug{Boot: "another", Index: 7}},
		"it names none":                     {MAC: "02:00:00:00:00:01", Plug: ipam.Plug{Boot: boot, Unseen: true}},
		"the kernel did not say, long ago":  {HostInterface: "port2", Plug: ipam.Plug{Boot: boot, Unseen: true, Unsaid: ipam.Now().Boottime - time.Hour}},
		"the kernel did not say, and knows": {HostInterface: "port1", Plug: ipam.Plug{Boot: boot, Index: 7, Inode: 9, Unsaid: ipam.Now().Boottime}},
	} {
		t.Run(name, func(t *testing.T) {
			if n := UnrecordedPlumbing(ports{there: map[string]bool{"port1": true}})(l); n.HostInterface != "" || n.Netns != "" {
				t.Errorf("%+v", n)
			}
		})
	}
}

// The kernel does not say in time whether a port leads into the namespace of a lease that names nothing
// else. A pass asks again, of that namespace: the lease counts as never seen until it is known.
func TestAPortIntoTheNamespaceIsAskedForAgain(t *testing.T) {
	const path = "/run/netns/1"
	there, slow := ports{there: map[string]bool{path: true}}, ports{fails: errors.New("not in time")}
	for name, tt := range map[string]struct {
		later  Kernel // as the pass binds
		unseen bool   // still
		unsaid bool
		err    error
	}{
		"there is one":          {inodeOf{there, 9}, false, false, nil},
		"on a shut bridge":      {inodeOf{ports{there: there.there, shut: true}, 9}, false, false, nil},
		"there is none":         {inodeOf{ports{}, 9}, true, false, nil},
		"it still does not say": {inodeOf{slow, 9}, true, true, nil},
		"a later namespace":     {inodeOf{there, 8}, true, true, ipam.ErrState},
		"no namespace any more": {inodeOf{there, 0}, true, true, ipam.ErrState},
	} {
		t.Run(name, func(t *testing.T) {
			b := Open(t)
			Pool(t, b, "default", "10.8.64.0/24")
			l, err := ResolvingBook{Book: b, Kernel: inodeOf{slow, 9}}.Bind(t.Context(), Who(ipam.ByClient, "bound"), Reserve(t, b, "a").ID, 0, ipam.Binding{Netns: path})
			if err != nil || !l.Plug.Unseen || l.Plug.Unsaid == 0 || l.Plug.Inode != 9 {
				t.Fatalf("bound as %+v, %v", l, err)
			}
			found := UnrecordedPlumbing(ports{})(l)
			_, err = ResolvingBook{Book: b, Kernel: tt.later}.Bind(t.Context(), Who(ipam.ByReconciler, "seen_plugged"), l.ID, l.Rev, found)
			if !errors.Is(err, tt.err) {
				t.Fatalf("bound again: %v", err)
			}
			now, err := b.Lease(l.ID)
			if err != nil || now.Plug.Unseen != tt.unseen || (now.Plug.Unsaid != 0) != tt.unsaid || now.Plug.Inode != 9 || now.Plug.Behind != 0 && tt.unseen {
				t.Errorf("recorded as %+v, %v", now, err)
			}
		})
	}
}

// inodeOf is a kernel that says which namespace is at each path.
type inodeOf struct {
	ports
	inode uint64
}

func (k inodeOf) PlugOf(context.Context, string, string) (int, uint64, error) { return 0, k.inode, nil }

// A forgetful kernel deletes its entries, or fails to.
type forgetful struct {
	ports
	forgotten *[]netip.Prefix
	err       error
}

func (k forgetful) Forget(_ context.Context, of ...netip.Prefix) error {
	*k.forgotten = append(*k.forgotten, of...)
	return k.err
}

// C12: the end of a quarantine begins with the kernel's oblivion, as that of a release does: nobody has confirmed
// the end of who had the address.
func TestC12AQuarantineEndsOnceTheKernelHasForgotten(t *testing.T) {
	book := Open(t)
	l, err := book.Quarantine(t.Context(), Who(ipam.ByAllocator, ipam.SeenOnWire), netip.MustParseAddr("10.8.64.9"), json.RawMessage(`[{"witness":"probe"}]`))
	if err != nil {
		t.Fatal(err)
	}
	who := Who(ipam.ByReconciler, "not_seen")
	var forgotten []netip.Prefix
	fails := errors.New("no answer")
	seen := errors.New("it is seen")
	for name, c := range map[string]struct {
		rev    int64
		unseen func() error
		want   error
	}{
		"seen meanwhile":    {l.Rev, func() error { return seen }, seen},
		"changed meanwhile": {l.Rev - 1, nil, ipam.ErrStale},
	} {
		if _, err := (ResolvingBook{Book: book, Kernel: forgetful{forgotten: &forgotten}}).ClearAt(t.Context(), who, l.ID, c.rev, c.unseen); !errors.Is(err, c.want) || len(forgotten) != 0 {
			t.Errorf("%s: %v, forgotten are %v", name, err, forgotten)
		}
	}
	if _, err := (ResolvingBook{Book: book, Kernel: forgetful{forgotten: &forgotten, err: fails}}).ClearAt(t.Context(), who, l.ID, l.Rev, nil); !errors.As(err, new(*allocator.EvidenceError)) {
		t.Errorf("cleared: %v", err)
	}
	if now, _ := book.Lease(l.ID); now == nil || now.State != ipam.Quarantined {
		t.Errorf("it is %+v", now)
	}
	if _, err := (ResolvingBook{Book: book, Kernel: forgetful{forgotten: &forgotten}}).ClearAt(t.Context(), who, l.ID, l.Rev, nil); err != nil || len(forgotten) != 2 || forgotten[1] != l.Prefix() {
		t.Errorf("%v, forgotten are %v", err, forgotten)
	}
}
