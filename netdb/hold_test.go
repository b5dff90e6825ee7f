package netdb_test

import (
	"errors"
	"path/filepath"
	"testing"

	"github.com/ipamd/ipamd/netdb"
	. "github.com/ipamd/ipamd/netdb/netdbtest"
	"github.com/ipamd/ipamd/netdb/salvage"
)

func noted(words string) netdb.Who {
	who := Who(netdb.ByOperator, "by_hand")
	who.Note = words
	return who
}

// F12: what an operator holds is a fact of the row, durable, with words of its
// own beside the evidence. Nobody but an operator moves it, by whatever verb, and
// a quarantine that stands already can be held, too.
func TestF12AHoldIsTheOperatorsAlone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "book.db")
	b := OpenAt(t, path, Options())
	Pool(t, b, "default", "10.8.64.0/24")
	_, err := b.Hold(ctx, noted(""), two, nil)
	wantErr(t, err, netdb.ErrInvalid)
	printer, err := b.Hold(ctx, noted("a printer"), two, nil)
	if err != nil || printer.Hold != "a printer" || printer.Evidence != nil || printer.State != netdb.Quarantined {
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
	for _, l := range []*netdb.Lease{printer, held} {
		if now, err := b.Lease(l.ID); err != nil || now.Hold != l.Hold {
			t.Errorf("after a restart: %+v, %v", now, err)
		}
		if _, err := b.ClearAt(ctx, reconciler, l.ID, l.Rev, nil); !errors.Is(err, netdb.ErrState) {
			t.Errorf("cleared by the reconciler: %v", err)
		}
		_, err := b.Adopt(ctx, reconciler, netdb.Adoption{Addr: l.Addr, Rev: l.Rev, Sandbox: "a", Binding: netdb.Binding{HostInterface: "veth1"}})
		if !errors.Is(err, netdb.ErrState) {
			t.Errorf("adopted: %v", err)
		}
		cool, err := b.ClearAt(ctx, Who(netdb.ByOperator, "cleared"), l.ID, l.Rev, nil)
		if err != nil || cool.State != netdb.Cooling || cool.Hold != "" {
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
	op := Who(netdb.ByOperator, "by_hand")
	for _, from := range []netdb.State{netdb.Reserved, netdb.Bound, netdb.Paused, netdb.Releasing, netdb.Quarantined} {
		b := Open(t)
		l := inState(t, b, from)
		if l.State.Open() {
			_, err := b.ForceRelease(ctx, noted("lost"), l.ID, 0, evidence)
			wantErr(t, err, netdb.ErrState) // its owner may be using it: it is released first
			if l, err = b.Release(ctx, op, l.ID, "", l.Rev); err != nil {
				t.Fatal(from, err)
			}
		}
		if l.State == netdb.Releasing {
			for name, wrong := range map[string]error{
				"without words":            second(b.ForceRelease(ctx, op, l.ID, 0, evidence)),
				"without evidence":         second(b.ForceRelease(ctx, noted("lost"), l.ID, 0, nil)),
				"as it was before":         second(b.ForceRelease(ctx, noted("lost"), l.ID, l.Rev-1, evidence)),
				"by an actor that may not": second(b.ForceRelease(ctx, netdb.Who{Actor: netdb.ByClient, Reason: "x", Note: "x"}, l.ID, 0, evidence)),
			} {
				if wrong == nil {
					t.Errorf("%s: forced %s", from, name)
				}
			}
			forced, err := b.ForceRelease(ctx, noted("lost"), l.ID, l.Rev, evidence)
			if err != nil || forced.State != netdb.Quarantined || forced.ID != l.ID || forced.Hold != "" {
				t.Fatal(from, forced, err)
			}
			if again, err := b.ForceRelease(ctx, noted("lost"), l.ID, l.Rev, evidence); err != nil || again != forced {
				t.Errorf("forced again: %+v, %v", again, err)
			}
			l = forced
		}
		cool, err := b.ClearAt(ctx, op, l.ID, l.Rev, nil)
		if err != nil || cool.State != netdb.Cooling {
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
	was := netdb.Lease{Addr: two, ID: "01890000-0000-7000-8000-000000000001", State: netdb.Bound, Sandbox: "a", UID: "a", Interface: "eth0", MAC: "02:00:00:00:00:01"}
	if _, err := b.QuarantineFormer(ctx, Who(netdb.ByOperator, netdb.Rebuilt), &was, evidence); err != nil {
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
	past, err := b.History(ctx, netdb.Query{LeaseID: was.ID})
	if err != nil || len(past) != 2 || past[0].Who.Reason == past[1].Who.Reason {
		t.Errorf("its history: %+v, %v", past, err)
	}
	back := netdb.Adoption{Addr: two, Rev: l.Rev, ID: l.ID, Sandbox: l.Sandbox, UID: l.UID, Interface: l.Interface, Binding: netdb.Binding{MAC: l.MAC}}
	if _, err := b.Adopt(ctx, client, back); !errors.Is(err, netdb.ErrState) {
		t.Errorf("past the operator: %v", err)
	}
	if now, err := b.Adopt(ctx, Who(netdb.ByOperator, "adopted"), back); err != nil || now.ID != was.ID || now.Hold != "" {
		t.Errorf("given back: %+v, %v", now, err)
	}
}
