package allocator

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/ipamd/ipamd/ipam"
	. "github.com/ipamd/ipamd/netdb/netdbtest"
)

// hasLinks makes a host that has these links.
func hasLinks(names ...string) func(*Config) {
	return func(c *Config) {
		c.HasLink = func(_ context.Context, name string) (bool, error) {
			for _, n := range names {
				if n == name {
					return true, nil
				}
			}
			return false, nil
		}
	}
}

// A request gets the name of a link beside its address: the same again, one for both
// families, none that another lease or a link of the host has, and none while the kernel
// does not answer; a refusal reserves nothing.
func TestHostNames(t *testing.T) {
	a := newAllocator(t, hasLinks("rt0", "veth1", "veth2"))
	Pool(t, a.Book, "default", "fd00:8::/64")
	get := func(r Request) (*Result, string) {
		t.Helper()
		got, err := a.Allocate(ctx, r)
		if err != nil {
			t.Fatal(err)
		}
		return got, a.Book.HostName(got.Leases[0].UID, got.Leases[0].Interface)
	}
	refused := func(r Request, want error) {
		t.Helper()
		rev := a.Book.Rev()
		if got, err := a.Allocate(ctx, r); !errors.Is(err, want) || a.Book.Rev() != rev {
			t.Errorf("%+v: %+v, %v; revision %d after %d", r, got, err, a.Book.Rev(), rev)
		}
	}
	first, name := get(Request{Sandbox: "a", HostName: "veth%d", Family: Dual})
	if name == "" || name == "veth1" || name == "veth2" || len(first.Leases) != 2 {
		t.Errorf("%q for %+v", name, first)
	}
	rev := a.Book.Rev()
	if again, is := get(Request{Sandbox: "a", HostName: "veth%d"}); is != name || !again.Existing || a.Book.Rev() != rev {
		t.Errorf("again: %q, %+v, revision %d after %d", is, again, a.Book.Rev(), rev)
	}
	if _, is := get(Request{Sandbox: "a"}); is != name {
		t.Errorf("without asking: %q", is)
	}
	refused(Request{Sandbox: "b", HostName: name}, ipam.ErrNameTaken)
	refused(Request{Sandbox: "b", HostName: "rt0"}, ipam.ErrNameTaken)
	refused(Request{Sandbox: "a", HostName: "other"}, ipam.ErrState)
	refused(Request{Sandbox: "b", HostName: "sixteen-bytes-is"}, ipam.ErrInvalid)
	// One that has its address already gets a name beside it.
	get(Request{Sandbox: "c"})
	if later, is := get(Request{Sandbox: "c", HostName: "link-c"}); is != "link-c" || !later.Existing {
		t.Errorf("later: %q, %+v", is, later)
	}
	// Another takes the number that was chosen before it is committed: there are others.
	for _, sandbox := range []string{"e", "f"} {
		var lost string
		a.HasLink = func(_ context.Context, name string) (bool, error) {
			if lost == "" {
				lost = name
				get(Request{Sandbox: sandbox + "-rival", HostName: name})
			}
			return false, nil
		}
		if sandbox == "f" {
			get(Request{Sandbox: sandbox}) // it is named later
		}
		if _, is := get(Request{Sandbox: sandbox, HostName: "veth%d"}); is == "" || is == lost {
			t.Errorf("%s has %q, and its rival %q", sandbox, is, lost)
		}
	}
	a.HasLink = func(context.Context, string) (bool, error) { return false, errors.New("rtnetlink is closed") }
	refused(Request{Sandbox: "d", HostName: "link-d"}, ErrEvidence)
}

// Calls at once get names of their own.
func TestHostNamesOfCallsAtOnce(t *testing.T) {
	a := newAllocator(t)
	var all sync.WaitGroup
	for i := range 32 {
		all.Go(func() {
			if _, err := a.Allocate(ctx, Request{Sandbox: fmt.Sprint(i % 16), HostName: "veth%d"}); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	names := make(map[string]bool)
	for _, n := range a.Book.HostNames() {
		names[n.Name] = true
	}
	if len(names) != 16 {
		t.Errorf("%d names of 16 sandboxes", len(names))
	}
}
