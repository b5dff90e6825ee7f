package orphans_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ipamd/ipamd/internal/ctrdtest"
	"github.com/ipamd/ipamd/internal/ownertest"
	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/orphans"
)

// A look-up that says "valid" begins the grace anew: each second sweep asks about a
// sandbox that the owner's list omits, and it keeps its lease.
func TestAValidAnswerBeginsTheGraceAnew(t *testing.T) {
	d := ctrdtest.Start(t, ctrdtest.V2)
	o := ownertest.Start(t, "--lag", "1h")
	b := newScene(t, d, o)
	_, err := b.owner.List(ctx) // from now on it is the list
	b.check(err)
	o.Set("valid", "a")
	b.record("a", "c1")
	l := b.lease("a", "c1")
	asked, stayed := 0, 0
	for range 10 {
		swept, err := b.Sweep(ctx)
		b.check(err)
		if len(swept.Orphans) > 0 {
			t.Fatalf("orphans: %+v", swept.Orphans)
		}
		asked, stayed = asked+swept.Asked, stayed+swept.Kept
	}
	if asked != 5 || stayed != 5 || o.Looks() != 5 || o.Lists() != 11 {
		t.Errorf("asked %d times, stayed %d times; the owner answered %d look-ups and %d lists", asked, stayed, o.Looks(), o.Lists())
	}
	b.wantNotes()
	if now, err := b.book.Lease(l.ID); err != nil || now.Rev != l.Rev || now.State != ipam.Bound {
		t.Errorf("its lease is %+v, %v", now, err)
	}
}

// W5: 500 sandboxes that the list itself calls gone cost no look-up, three
// that it lacks cost three.
func TestW5LookupsAreCounted(t *testing.T) {
	ctrdtest.One(t, func(t *testing.T, d *ctrdtest.Daemon) {
		o := ownertest.Start(t)
		b := newScene(t, d, o, func(c *orphans.Config) { c.Remove = false })
		var dead []string
		for i := range 500 {
			dead = append(dead, fmt.Sprintf("dead-%d", i))
		}
		for _, name := range append([]string{"u1", "u2", "u3", "bystander"}, dead...) {
			d.Create(t, ctrdtest.Spec{Namespace: space, ID: name, Labels: labelled(name)})
		}
		o.Set("gone", dead...)
		swept := b.sweep()
		listed := 0
		for _, one := range swept.Orphans {
			if one.Listed {
				listed++
			}
		}
		if len(swept.Orphans) != 503 || listed != 500 || swept.Asked != 3 || swept.Sandboxes != 504 || swept.Listed != 501 {
			t.Errorf("%d orphans, %d of them listed, in %d sandboxes and %d rows; asked about %d",
				len(swept.Orphans), listed, swept.Sandboxes, swept.Listed, swept.Asked)
		}
		if o.Looks() != 3 || o.Lists() != 2 {
			t.Errorf("the owner answered %d look-ups and %d lists", o.Looks(), o.Lists())
		}
		b.wantNotes()
	})
}

// W5: an owner that has no answer keeps its sandboxes; that is logged once.
func TestW5UnknownKeeps(t *testing.T) {
	d := ctrdtest.Start(t, ctrdtest.V2)
	o := ownertest.Start(t, "--lag", "1h")
	b := newScene(t, d, o)
	_, err := b.owner.List(ctx)
	b.check(err)
	b.record("a", "c1")
	l := b.lease("a", "c1")
	o.Set("limbo", "a")
	for range 3 {
		if swept := b.sweep(); swept.Kept != 1 || len(swept.Orphans) != 0 {
			t.Errorf("swept: %+v", swept)
		}
	}
	o.Break()
	for range 3 {
		if swept := b.sweep(); swept.Kept != 1 || len(swept.Orphans) != 0 {
			t.Errorf("swept: %+v", swept)
		}
	}
	if n := b.log.count("no clear word"); n != 2 {
		t.Errorf("two reasons were logged %d times", n)
	}
	b.wantNotes()
	o.Set("gone", "a") // by look-up: the list still lacks it
	if swept := b.sweep(); len(swept.Orphans) != 0 {
		t.Errorf("after the removal there are %+v", swept.Orphans)
	}
	b.wantNotes("task c1", "record c1", "lease of a (watchdog, orphaned)")
	if b.state(l) != ipam.Releasing || len(b.containers()) != 0 {
		t.Errorf("its lease is %s, containers %v", b.state(l), b.containers())
	}
}

// An owner that lists no sandbox at all has lost its memory; one that cannot list
// is not asked about any.
func TestAnEmptyListIsAnAlarm(t *testing.T) {
	d := ctrdtest.Start(t, ctrdtest.V2)
	o := ownertest.Start(t)
	b := newScene(t, d, o)
	o.Forget("bystander")
	if swept, err := b.Sweep(ctx); err != nil || len(swept.Orphans) != 0 {
		t.Fatalf("an empty list, and none asked for: %+v, %v", swept, err)
	}
	b.record("a", "c1")
	o.Set("gone", "a")
	b.sweep() // removed
	b.read()
	b.record("a", "c2")
	b.record("b", "c3")
	o.Forget("a")
	began := time.Now()
	for range 3 {
		if swept, err := b.Sweep(ctx); !errors.Is(err, orphans.ErrEmptyList) || swept != nil {
			t.Errorf("swept %+v, %v", swept, err)
		}
	}
	left, err := b.Orphans()
	if len(left) != 0 || !errors.Is(err, orphans.ErrEmptyList) {
		t.Errorf("orphans %+v, %v", left, err)
	}
	var first, later *orphans.UnclearError
	if !errors.As(err, &first) || first.Since.Before(began) {
		t.Errorf("unclear since before it began, or not at all: %+v", first)
	}
	if n := b.log.count("not looked for"); n != 1 {
		t.Errorf("it was logged %d times", n)
	}
	o.Break()
	for range 3 {
		if _, err := b.Sweep(ctx); err == nil || errors.Is(err, orphans.ErrEmptyList) {
			t.Errorf("a broken owner: %v", err)
		}
	}
	if _, err := b.Orphans(); !errors.As(err, &later) || errors.Is(err, orphans.ErrEmptyList) || !later.Since.Equal(first.Since) {
		t.Errorf("unclear by %v, which began with %v", err, first.Since)
	}
	if n := b.log.count("not looked for"); n != 2 || o.Looks() != 0 {
		t.Errorf("logged %d times; %d look-ups", n, o.Looks())
	}
	b.wantNotes()
	o.Set("valid", "a", "b")
	b.sweep()
	if left, err := b.Orphans(); len(left) != 0 || err != nil {
		t.Errorf("orphans %+v, %v", left, err)
	}
}

// Without Remove an orphan is warned, with what it has and since when, and
// nothing moves.
func TestOrphansAreOnlyReported(t *testing.T) {
	d := ctrdtest.Start(t, ctrdtest.V2)
	o := ownertest.Start(t)
	b := newScene(t, d, o, func(c *orphans.Config) { c.Remove = false })
	began := time.Now()
	_, signals := b.run("a", "c2", trap(""))
	b.record("a", "c1")
	l := b.lease("a", "c1", "c2")
	for range 3 {
		b.sweep()
	}
	left, err := b.Orphans()
	b.check(err)
	if len(left) != 1 || left[0].Sandbox != "a" || fmt.Sprint(left[0].Containers) != "["+space+"/c1 "+space+"/c2]" ||
		!slices.Equal(left[0].Leases, []string{l.ID}) || left[0].Removed || left[0].Err != nil || left[0].Since.Before(began) {
		t.Errorf("orphans %+v", left)
	}
	if says := left[0].Detail(); !strings.Contains(says, space+"/c2") {
		t.Errorf("it says %q", says)
	}
	b.wantNotes()
	if n := b.log.count("orphan found"); n != 1 || b.state(l) != ipam.Bound || signals() != "" {
		t.Errorf("logged %d times, lease %s, signals %q", n, b.state(l), signals())
	}
	o.Set("valid", "a")
	b.sweep()
	if left, err := b.Orphans(); len(left) != 0 || err != nil {
		t.Errorf("after a mistake was corrected: %+v, %v", left, err)
	}
}
