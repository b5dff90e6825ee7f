package netdb_test

import (
	"errors"
	"path/filepath"
	"testing"

	"github.com/ipamd/ipamd/ipam"
	. "github.com/ipamd/ipamd/netdb/netdbtest"
	"github.com/ipamd/ipamd/netdb/salvage"
)

func noted(words string) ipam.Who {
	who := Who(ipam.ByOperator, "by_hand")
	who.Note = words
	return who
}

// F12: what an operator holds is a fact of the row, durable, with words of its
// own beside the evidence. Only an operator moves it, by whatever verb, and
// a quarantine that stands already can be held, too.
func TestF12AHoldIsTheOperatorsAlone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "book.db")
	b := OpenAt(t, path, Options())
	Pool(t, b, "default", "10.8.64.0/24")
	_, err := b.Hold(ctx, noted(""), two, nil)
	wantErr(t, err, ipam.ErrInvalid)
	printer, err := b.Hold(ctx, noted("a printer"), two, nil)
	if err != nil || printer.Hold != "a printer" || printer.Evidence != nil || printer.State != ipam.Quarantined {
		t.Fatal(printer, err)
	}
	if again, err := b.Hold(ctx, noted("a printer"), two, nil); err != nil || again != printer {
		t.Errorf("held again: %+v, %v", again, err)
	}
	seen, err := b.Quarantine(ctx, reconciler, two.Next(), evidence)
	if err != nil {
		t.Fatal(err)
	}
	held, err := b.Hold(ctx, noted("so is this"), seen.Addr, nil)
	if err != nil || held.ID != seen.ID || held.Hold == "" || string(held.Evidence) != string(evidence) || held.Since != seen.Since {
		t.Fatal(held, err)
	}
	Close(t, b)
	b = OpenAt(t, path, Options())
	for _, l := range []*ipam.Lease{printer, held} {
		if now, err := b.Lease(l.ID); err != nil || now.Hold != l.Hold {
			t.Errorf("after a restart: %+v, %v", now, err)
		}
		if _, err := b.ClearAt(ctx, reconciler, l.ID, l.Rev, nil); !errors.Is(err, ipam.ErrState) {
			t.Errorf("cleared by the reconciler: %v", err)
		}
		_, err := b.Adopt(ctx, reconciler, ipam.Adoption{Addr: l.Addr, Rev: l.Rev, Sandbox: "a", Binding: ipam.Binding{HostInterface: "veth1"}})
		if !errors.Is(err, ipam.ErrState) {
			t.Errorf("adopted: %v", err)
		}
		cool, err := b.ClearAt(ctx, Who(ipam.ByOperator, "cleared"), l.ID, l.Rev, nil)
		if err != nil || cool.State != ipam.Cooling || cool.Hold != "" {
			t.Errorf("cleared: %+v, %v", cool, err)
		}
	}
	if s, err := salvage.Book(path); err != nil || len(s.Problems) > 0 {
		t.Errorf("salvaged: %+v, %v", s, err)
	}
}

// F21: an operator has a way out of every state, without the runtime's or the
// kernel's help and without a way to free at once: released, forced, cleared. It
// names the lease at each step, and says why where it overrules a confirmation.
func TestF21AnOperatorHasAWayOutOfEveryState(t *testing.T) {
	op := Who(ipam.ByOperator, "by_hand")
	for _, from := range []ipam.State{ipam.Reserved, ipam.Bound, ipam.Paused, ipam.Releasing, ipam.Quarantined} {
		b := Open(t)
		l := inState(t, b, from)
		if l.State.Open() {
			_, err := b.ForceRelease(ctx, noted("lost"), l.ID, 0, evidence)
			wantErr(t, err, ipam.ErrState) // its owner may be using it: it is released first
			if l, err = b.Release(ctx, op, l.ID, "", l.Rev); err != nil {
				t.Fatal(from, err)
			}
		}
		if l.State == ipam.Releasing {
			for name, wrong := range map[string]error{
				"without words":            second(b.ForceRelease(ctx, op, l.ID, 0, evidence)),
				"without evidence":         second(b.ForceRelease(ctx, noted("lost"), l.ID, 0, nil)),
				"as it was before":         second(b.ForceRelease(ctx, noted("lost"), l.ID, l.Rev-1, evidence)),
				"by an actor that may not": second(b.ForceRelease(ctx, ipam.Who{Actor: ipam.ByClient, Reason: "x", Note: "x"}, l.ID, 0, evidence)),
			} {
				if wrong == nil {
					t.Errorf("%s: forced %s", from, name)
				}
			}
			forced, err := b.ForceRelease(ctx, noted("lost"), l.ID, l.Rev, evidence)
			if err != nil || forced.State != ipam.Quarantined || forced.ID != l.ID || forced.Hold != "" {
				t.Fatal(from, forced, err)
			}
			if again, err := b.ForceRelease(ctx, noted("lost"), l.ID, l.Rev, evidence); err != nil || again != forced {
				t.Errorf("forced again: %+v, %v", again, err)
			}
			l = forced
		}
		cool, err := b.ClearAt(ctx, op, l.ID, l.Rev, nil)
		if err != nil || cool.State != ipam.Cooling {
			t.Fatal(from, cool, err)
		}
	}
}

// F30: an operator who holds the address of a lease of before a rebuild takes nothing
// of its owner's claim away, also over a restart; the lease comes back under its id.
func TestF30AHoldKeepsAFormersClaim(t *testing.T) {
	path := filepath.Join(t.TempDir(), "book.db")
	b := OpenAt(t, path, Options())
	Pool(t, b, "default", "10.8.64.0/24")
	was := ipam.Lease{Addr: two, ID: "01890000-0000-7000-8000-000000000001", State: ipam.Bound, Sandbox: "a", UID: "a", Interface: "eth0", MAC: "02:00:00:00:00:01"}
	if _, err := b.QuarantineFormer(ctx, Who(ipam.ByOperator, ipam.Rebuilt), &was, evidence); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Hold(ctx, noted("I look after it"), two, nil); err != nil {
		t.Fatal(err)
	}
	Close(t, b)
	b = OpenAt(t, path, Options())
	l, err := b.Lease(was.ID)
	if err != nil || !l.Former() || l.Hold != "I look after it" || l.MAC != was.MAC {
		t.Fatalf("%+v, %v", l, err)
	}
	past, err := b.History(ctx, ipam.Query{LeaseID: was.ID})
	if err != nil || len(past) != 2 || past[0].Who.Reason == past[1].Who.Reason {
		t.Errorf("its history: %+v, %v", past, err)
	}
	back := ipam.Adoption{Addr: two, Rev: l.Rev, ID: l.ID, Sandbox: l.Sandbox, UID: l.UID, Interface: l.Interface, Binding: ipam.Binding{MAC: l.MAC}}
	if _, err := b.Adopt(ctx, client, back); !errors.Is(err, ipam.ErrState) {
		t.Errorf("past the operator: %v", err)
	}
	if now, err := b.Adopt(ctx, Who(ipam.ByOperator, "adopted"), back); err != nil || now.ID != was.ID || now.Hold != "" {
		t.Errorf("given back: %+v, %v", now, err)
	}
}

// P3: who holds an address by hand ends no lease with it: one that is being released knows by what the end of its
// sandbox is confirmed.
func TestAHoldEndsNoLease(t *testing.T) {
	b := Open(t)
	Pool(t, b, "default", "10.8.64.0/24")
	l := bind(t, b, "a")
	for _, state := range []ipam.State{ipam.Bound, ipam.Releasing} {
		if state == ipam.Releasing {
			if _, err := b.Release(ctx, client, l.ID, "", 0); err != nil {
				t.Fatal(err)
			}
		}
		_, err := b.Hold(ctx, noted("a printer"), l.Addr, nil)
		wantErr(t, err, ipam.ErrState)
		if now, err := b.Lease(l.ID); err != nil || now.State != state || len(now.Containers) != len(l.Containers) || now.HostInterface != l.HostInterface {
			t.Errorf("%s: %+v, %v", state, now, err)
		}
	}
}
