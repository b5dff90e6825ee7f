package plumb

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
)

// slotOf is the spec of a slot, which is taken away when the test ends.
func (w *world) slotOf(t *testing.T, runner, slot string) Spec {
	t.Helper()
	s := specOf(SlotPath(runner, slot))
	s.Owner, s.Host = slot, HostName(slot)
	t.Cleanup(func() { _ = RemoveNetns(s.Netns) })
	return s
}

func (w *world) slot(t *testing.T, runner string, s Spec) (err error) {
	w.host.Do(func() { _, err = MakeSlot(t.Context(), runner, s) })
	return err
}

func (w *world) noSlot(t *testing.T, runner string, s Spec) (err error) {
	w.host.Do(func() { err = RemoveSlot(t.Context(), runner, s.Netns, s.Host, s.Owner) })
	return err
}

// A slot is made and listed, and is made whole again after it was changed. Taken down
// it leaves nothing, also asked twice.
func TestASlotIsMadeAndTakenDown(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	runner := t.Name() + strconv.Itoa(os.Getpid())
	s := w.slotOf(t, runner, "one")
	for range 2 {
		if err := w.slot(t, runner, s); err != nil {
			t.Fatal(err)
		}
	}
	var diffs []Difference
	var err error
	w.host.Do(func() { diffs, err = Check(t.Context(), s) })
	if err != nil || len(diffs) > 0 {
		t.Errorf("made: %v, %v", diffs, err)
	}
	if all, err := SlotPaths(runner); err != nil || !slices.Equal(all, []string{s.Netns}) {
		t.Errorf("listed: %v, %v", all, err)
	}
	if all, err := SlotPaths(runner + "x"); err != nil || len(all) != 0 {
		t.Errorf("another runner's: %v, %v", all, err)
	}
	for range 2 {
		if err := w.noSlot(t, runner, s); err != nil {
			t.Fatal(err)
		}
	}
	if at := links(t, w.host); len(at) > 0 {
		t.Errorf("left: %v", at)
	}
	if all, err := SlotPaths(runner); err != nil || len(all) != 0 {
		t.Errorf("left: %v, %v", all, err)
	}
}

// A path that is no slot's of this runner is neither made nor removed, whatever it is named.
func TestASlotIsOnlyWhereSlotsAre(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	runner := t.Name() + strconv.Itoa(os.Getpid())
	other := SlotPath(runner+"x", "one")
	if err := MakeNetns(other); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = RemoveNetns(other) })
	for _, path := range []string{other, w.guest.Path(), "/run/netns/one", filepath.Dir(SlotPath(runner, "one")), SlotPath(runner, "one") + "/../x", ""} {
		s := specOf(path)
		if err := w.slot(t, runner, s); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s was made: %v", path, err)
		}
		if err := w.noSlot(t, runner, s); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s was removed: %v", path, err)
		}
	}
	if _, err := os.Lstat(other); err != nil {
		t.Errorf("another runner's slot: %v", err)
	}
}

// Of a slot that cannot be made nothing is left.
func TestASlotThatFailsLeavesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	runner := t.Name() + strconv.Itoa(os.Getpid())
	s := w.slotOf(t, runner, "one")
	s.Bridge = "rt9"
	if err := w.slot(t, runner, s); !errors.Is(err, ErrMissing) {
		t.Errorf("on no bridge: %v", err)
	}
	if all, err := SlotPaths(runner); err != nil || len(all) != 0 {
		t.Errorf("left: %v, %v", all, err)
	}
}

// A process that makes a slot and is killed at any step leaves what the next one finishes,
// or takes down whole.
func TestASlotThatWasBegunIsFinished(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	runner := t.Name() + strconv.Itoa(os.Getpid())
	for n := 1; ; n++ {
		w.spec = w.slotOf(t, runner, strconv.Itoa(n))
		ended := w.killed(t, n)
		if err := w.slot(t, runner, w.spec); err != nil {
			t.Errorf("step %d: %v", n, err)
		}
		var diffs []Difference
		var err error
		w.host.Do(func() { diffs, err = Check(t.Context(), w.spec) })
		if err != nil || len(diffs) > 0 {
			t.Errorf("step %d: %v, %v", n, diffs, err)
		}
		if err := w.noSlot(t, runner, w.spec); err != nil {
			t.Errorf("step %d: %v", n, err)
		}
		w.spec = w.slotOf(t, runner, strconv.Itoa(n)+"b")
		w.killed(t, n)
		if err := w.noSlot(t, runner, w.spec); err != nil {
			t.Errorf("step %d: %v", n, err)
		}
		all, err := SlotPaths(runner)
		if at := links(t, w.host); err != nil || len(all) > 0 || len(at) > 0 {
			t.Errorf("step %d: left %v, %v, %v", n, all, at, err)
		}
		if ended {
			return
		}
	}
}

// A namespace can be removed that was made before iproute2 made its first one, also where nothing
// of the machine's file systems is shared.
func TestASlotIsRemovedAlsoAfterIproute2CameLater(t *testing.T) {
	t.Parallel()
	newWorld(t) // it needs what a world needs
	path := SlotPath(t.Name()+strconv.Itoa(os.Getpid()), "one")
	failed := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and ends with its thread, which alone sees these mounts
		failed <- func() error {
			if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
				return err
			}
			if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
				return err
			}
			if err := unix.Mount("none", "/run", "tmpfs", 0, ""); err != nil {
				return err
			}
			if err := MakeNetns(path); err != nil {
				return err
			}
			if out, err := exec.Command("ip", "netns", "add", "later").CombinedOutput(); err != nil {
				return fmt.Errorf("ip netns add: %w: %s", err, out)
			}
			return RemoveNetns(path)
		}()
	}()
	if err := <-failed; err != nil {
		t.Error(err)
	}
}
