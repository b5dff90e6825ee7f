package enforce

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/ipamd/ipamd/internal/nstest"
)

// A refusing one refuses to set what becomes of group frames, or to forget what was learned, and may not say where
// leases are.
type refusing struct {
	asked
	groups, learned error
	set             int // how often it was asked to set them
}

func (w *refusing) SetGroups(context.Context, int, bool) error { w.set++; return w.groups }
func (w *refusing) Unlearn(context.Context, int) error         { return w.learned }

// keeper returns one that is started, and its log.
func (w *refusing) keeper(t *testing.T) (k *Keeper, log *strings.Builder) {
	t.Helper()
	log = new(strings.Builder)
	var err error
	nstest.New(t).Do(func() {
		k, err = Open(t.Context(), Config{Policy: Policy{Mode: Enforce}, Book: w, Kernel: w, Boot: "boot", Every: time.Hour, Log: slog.New(slog.NewTextHandler(log, nil))})
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = k.Close() })
	return k, log
}

// TestE4WhatIsInTheWayStandsUntilItIsDone: what the kernel refuses for good is logged once, and the status has it since
// then, whatever else succeeds meanwhile; it ends with its own success alone.
func TestE4WhatIsInTheWayStandsUntilItIsDone(t *testing.T) {
	t.Parallel()
	w := new(refusing)
	k, log := w.keeper(t)
	if err := k.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.bind("a")
	w.bind("b")
	w.groups, w.learned = errors.New("no groups"), errors.New("no unlearning")
	stands := func(when string, since time.Time, want ...error) time.Time {
		t.Helper()
		s := k.Status()
		for _, err := range []error{w.groups, w.learned} {
			if errors.Is(s.Err, err) != (len(want) == 2 || len(want) == 1 && want[0] == err) {
				t.Errorf("%s: in the way is %v, want %v", when, s.Err, want)
			}
		}
		if len(want) > 0 && !errors.Is(s.Err, ErrNotHeld) {
			t.Errorf("%s: the status is %v", when, s.Err)
		}
		if !since.IsZero() && !s.Since.Equal(since) {
			t.Errorf("%s: it is in the way since %v, and was since %v", when, s.Since, since)
		}
		return s.Since
	}
	groups, learned := w.groups, w.learned
	if err := k.follow(t.Context()); !errors.Is(err, groups) || !errors.Is(err, learned) || !errors.Is(err, ErrNotHeld) {
		t.Errorf("the comparison ends with %v", err)
	}
	since := stands("at first", time.Time{}, groups, learned)
	for range 3 {
		_ = k.follow(t.Context())
		_ = k.followPorts(t.Context())
		stands("after the next try", since, groups, learned)
	}
	if n := strings.Count(log.String(), "no groups"); n != 1 {
		t.Errorf("it is logged %d times:\n%s", n, log)
	}
	_ = k.Ensure(t.Context(), w.bind("c")) // SetGroups is refused to it, too
	stands("after a bind", since, groups, learned)
	w.groups = nil
	if err := k.Ensure(t.Context(), "c"); err != nil {
		t.Fatal(err)
	}
	w.groups = groups
	stands("after a bind that succeeded", since, groups, learned)
	if n := strings.Count(log.String(), "no groups"); n != 1 {
		t.Errorf("it is logged %d times:\n%s", n, log)
	}
	w.learned = nil
	_ = k.follow(t.Context())
	w.learned = learned
	stands("when the one has ended", time.Time{}, groups)
	w.groups, w.learned = nil, nil
	if err := k.follow(t.Context()); err != nil {
		t.Fatal(err)
	}
	if s := k.Status(); s.Err != nil || !s.Since.IsZero() {
		t.Errorf("when all has ended, in the way is %v since %v", s.Err, s.Since)
	}
}

// TestE4APlaceThatIsNotSaidIsInTheWay: where the kernel does not say which ports lead into a lease's namespace, as on a file
// system that hangs, the status names the lease for as long as that lasts, though the table is made. A caller that does not wait
// for it is no cause.
func TestE4APlaceThatIsNotSaidIsInTheWay(t *testing.T) {
	t.Parallel()
	w := &refusing{asked: *in(2, 2)}
	for i, l := range w.leases {
		l.Addr = netip.AddrFrom4([4]byte{10, 8, 0, byte(i + 2)})
	}
	k, log := w.keeper(t)
	if err := k.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.silent = func(n RecordedNetns) bool { return n.Inode == 2 }
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if _ = k.follow(over); strings.Contains(log.String(), "the port of lease") {
		t.Errorf("the caller does not wait, and logged is:\n%s", log)
	}
	_ = k.follow(t.Context())
	since := k.Status().Since
	for range 3 {
		if err := errors.Join(k.followPorts(t.Context()), k.Ensure(t.Context(), "0")); err != nil {
			t.Fatal(err)
		}
		if err := k.follow(t.Context()); !errors.Is(err, ErrNotHeld) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the comparison ends with %v", err)
		}
		if s := k.Status(); !s.Held || s.Err == nil || !strings.Contains(s.Err.Error(), "the port of lease 1:") || since.IsZero() || !s.Since.Equal(since) {
			t.Errorf("the status is %+v, and it lasts since %v", s, since)
		}
	}
	if n := strings.Count(log.String(), "the port of lease 1:"); n != 1 {
		t.Errorf("it is logged %d times:\n%s", n, log)
	}
	w.silent = nil
	if err := k.follow(t.Context()); err != nil || k.Status().Err != nil {
		t.Errorf("the kernel says it: %v, and the status is %+v", err, k.Status())
	}
}
