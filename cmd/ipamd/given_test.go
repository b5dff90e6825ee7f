package main

import (
	"errors"
	"testing"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/client"
)

// E3: an allocation that is bound at once is in the book as an allocation and a bind are, and
// is answered when the rules of its port hold.
func TestE3AllocateThatBinds(t *testing.T) {
	t.Parallel()
	w := newWorld(t, enforced)
	known := 0
	for i := range 20 {
		name := "a" + string(rune('a'+i))
		p := w.ns.Port("rt0")
		where := &api.BindRequest{HostInterface: p.HostName, Netns: p.NS.Path(), MAC: p.MAC.String()}
		r, err := w.client.Allocate(ctx, api.AllocateRequest{Sandbox: name, Bind: where})
		if err != nil {
			t.Fatal(err)
		}
		l := r.Leases[0]
		if !w.ruled(p, l.Address) {
			t.Fatalf("%s was answered, and no rule allows it on %s", l.Address, p.HostName)
		}
		if l.State != api.Bound || l.HostInterface != p.HostName || r.Existing || len(r.Warnings) != 0 {
			t.Fatalf("given as %+v, %+v", l, r.Warnings)
		}
		again, err := w.client.Allocate(ctx, api.AllocateRequest{Sandbox: name, Bind: where})
		if err != nil || !again.Existing {
			t.Fatalf("asked again: %+v, %v", again, err)
		}
		// A machine that stands still does not say in time which link and namespace they are: it is
		// recorded that they are not known, and the next call or pass records which.
		is := func(l api.Lease) bool { return l.HostIndex != 0 && l.NetnsInode != 0 }
		if is(l) && is(again.Leases[0]) {
			if known++; again.Leases[0].Revision != l.Revision {
				t.Errorf("asked again, it is another lease: %+v, %+v", l, again.Leases[0])
			}
		}
	}
	if known == 0 {
		t.Error("of no port the link and the namespace are known")
	}
	// What is plugged in elsewhere already is for the caller to look at.
	l, _ := w.plugIn("moved")
	other := w.ns.Port("rt0")
	r, err := w.client.Allocate(ctx, api.AllocateRequest{Sandbox: "moved", Bind: &api.BindRequest{HostInterface: other.HostName}})
	if err != nil || r.Leases[0].HostInterface != l.HostInterface || r.Leases[0].Revision != l.Revision {
		t.Errorf("bound elsewhere: %+v, %v", r, err)
	}
	// One that was reserved is bound.
	reserved := w.allocate("reserved").Leases[0]
	r, err = w.client.Allocate(ctx, api.AllocateRequest{Sandbox: "reserved", Bind: &api.BindRequest{HostInterface: other.HostName, MAC: other.MAC.String()}})
	if err != nil || r.Leases[0].ID != reserved.ID || r.Leases[0].State != api.Bound || !w.ruled(other, reserved.Address) {
		t.Errorf("one that was reserved: %+v, %v", r, err)
	}
	// A bind that is refused reserves nothing.
	before := w.program.book.Rev()
	for field, ask := range map[string]api.AllocateRequest{
		"bind.netns":          {Bind: &api.BindRequest{Netns: "/etc/passwd"}},
		"bind.mac":            {Bind: &api.BindRequest{MAC: "x"}},
		"bind.containers":     {Bind: &api.BindRequest{}},
		"bind.if_revision":    {Bind: &api.BindRequest{MAC: "02:00:00:00:00:01", IfRevision: 3}},
		"bind":                {Bind: &api.BindRequest{MAC: "02:00:00:00:00:01"}, Attach: &api.AttachRequest{Netns: other.NS.Path()}},
		"bind.host_interface": {Bind: &api.BindRequest{HostInterface: "a b"}},
	} {
		ask.Sandbox = "refused"
		_, err := w.client.Allocate(ctx, ask)
		e := new(api.Error)
		if !errors.Is(err, client.ErrInvalidArgument) || !errors.As(err, &e) || e.Details["field"] != field {
			t.Errorf("%s: %v", field, err)
		}
	}
	if rev := w.program.book.Rev(); rev != before {
		t.Errorf("the book went from %d to %d", before, rev)
	}
}
