package main

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/config"
	"github.com/ipamd/ipamd/internal/realtest"
	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/netdb"
	"github.com/ipamd/ipamd/plumb"
)

// warmHelper starts `ipamd plumb --slots` in the bridge's namespace.
func (w *world) warmHelper() (p *process) {
	w.t.Helper()
	w.keepsNothing() // after the helper has ended, which would make them again
	w.ns.Do(func() { p = launch(w.t, w.t.TempDir(), "plumb", "--slots", "--socket", w.cfg.Socket.Path) })
	realtest.Eventually(w.t, wait, "the warm helper to ask for work", func() bool { return w.program.warm.Helped() })
	return p
}

// keepSlots has the first pool keep slots, made with an MTU that tells one spec from another.
func (w *world) keepSlots(mtu int, warm *ipam.Warm, routes ...ipam.Route) *ipam.Pool {
	w.t.Helper()
	w.keepsNothing()
	b := w.program.book
	spec := b.Pools()[0].PoolSpec
	spec.MTU, spec.Warm, spec.Routes = mtu, warm, routes
	p, err := b.EnsurePool(ctx, ipam.Who{Actor: ipam.ByOperator, Peer: "test", Reason: "pool_changed"}, spec)
	if err != nil {
		w.t.Fatal(err)
	}
	return p
}

// dropNamespaces removes what slots a test left, also one that failed.
func (w *world) dropNamespaces() {
	for _, path := range w.namespaces() {
		_ = plumb.RemoveNetns(path)
	}
}

// namespaces are those of this runner's slots that are there.
func (w *world) namespaces() []string {
	w.t.Helper()
	paths, err := plumb.SlotPaths(w.program.book.Info().RunnerUID)
	if err != nil {
		w.t.Error(err)
	}
	return paths
}

// ready are the leases of slots that may be given.
func (w *world) ready() (out []*ipam.Lease) {
	b := w.program.book
	for _, s := range b.Slots() {
		if l, err := b.Lease(s.LeaseID); err == nil && s.Ready(l) {
			out = append(out, l)
		}
	}
	return out
}

// settled waits until so many slots are ready, and nothing else of slots is there: no other
// lease, namespace or port.
func (w *world) settled(n int) []*ipam.Lease {
	w.t.Helper()
	var state string
	defer func() {
		if w.t.Failed() {
			w.t.Log(state)
		}
	}()
	realtest.Eventually(w.t, wait, fmt.Sprintf("%d slots and nothing else", n), func() bool {
		slots := 0
		claimed := 0
		all, _ := w.program.book.Leases()
		for _, l := range all {
			if ipam.IsSlotUID(l.UID) {
				slots++
			} else if s := w.program.book.Slot(l.ID); s != nil {
				claimed++
			}
		}
		ports := strings.Count(w.rt0(), "sb")
		state = fmt.Sprintf("%d ready, %d leases of slots, %d claimed, namespaces %v, ports %s", len(w.ready()), slots, claimed, w.namespaces(), w.rt0())
		return len(w.ready()) == n && slots == n && len(w.namespaces()) == n+claimed && ports == n+claimed
	})
	return w.ready()
}

// claim gives a ready slot to a sandbox, as the book does, once there is one.
func (w *world) claim(sandbox string) (given *ipam.Lease) {
	w.t.Helper()
	realtest.Eventually(w.t, wait, "a slot for "+sandbox, func() bool {
		for _, l := range w.ready() {
			var err error
			given, _, err = w.program.book.ClaimSlot(ctx, ipam.Who{Actor: ipam.ByAllocator, Peer: "test", Reason: ipam.SlotClaimed}, netdb.Claim{
				LeaseID: l.ID, Sandbox: sandbox, UID: sandbox, Interface: l.Interface, Attempt: 1, Profile: w.program.slotProfile("rt0")})
			if err == nil {
				return true
			}
		}
		return false
	})
	return given
}

// A pool's slots are made, refilled when they are given, and taken down when they are not wanted;
// one that a sandbox had is used once, and goes with its release.
func TestSlotsAreKept(t *testing.T) {
	t.Parallel()
	w := newWorld(t, quick)
	w.warmHelper()
	w.keepSlots(1400, &ipam.Warm{Size: 4, Max: 6})
	made := w.settled(4)
	for _, l := range made {
		if l.Interface != "eth0" || l.Sandbox != l.UID || l.MAC == "" || l.Plug.Inode == 0 || l.Plug.Index == 0 {
			t.Errorf("a slot's lease: %+v", l)
		}
	}
	given := w.claim("a")
	w.settled(4)
	if !slices.Contains(w.namespaces(), given.Netns) {
		t.Errorf("the sandbox's namespace %s is gone", given.Netns)
	}
	if _, _, err := w.program.watchdog.Release(ctx, ipam.Who{Actor: ipam.ByClient, Peer: "test", Reason: "released"}, given.ID, "", 0); err != nil {
		t.Fatal(err)
	}
	w.settled(4)
	realtest.Eventually(t, wait, "the sandbox's namespace to go", func() bool { return !slices.Contains(w.namespaces(), given.Netns) })
	w.keepSlots(1400, nil)
	w.settled(0)
	for _, l := range made { // no sandbox had them: their addresses do not cool
		if now, is := w.program.book.At(l.Addr); is && now.Sandbox != "a" {
			t.Errorf("the address of a slot that was never given: %+v", now)
		}
	}
}

// M12: slots are checked one by one after a restart, namespaces of this runner that the book does
// not know are taken down, and others' are not touched.
func TestM12SlotsAfterARestart(t *testing.T) {
	t.Parallel()
	w := newWorld(t, quick)
	helper := w.warmHelper()
	w.keepSlots(1400, &ipam.Warm{Size: 4, Max: 8})
	w.settled(4)
	given := w.claim("a")
	before := w.settled(4)
	_ = helper.cmd.Process.Kill()
	<-helper.done
	w.stopDaemon()

	runner := w.program.book.Info().RunnerUID
	others := []string{plumb.SlotPath(runner+"-other", "one"), filepath.Join(plumb.SlotFolder, "ipamd-test-"+runner)}
	for _, path := range append([]string{plumb.SlotPath(runner, "unknown")}, others...) {
		if err := plumb.MakeNetns(path); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = plumb.RemoveNetns(path) })
	}
	// A file without a namespace, as a helper leaves it that is killed at that moment.
	if err := os.WriteFile(plumb.SlotPath(runner, "begun"), nil, 0o444); err != nil {
		t.Fatal(err)
	}
	// One lost its namespace, as in a reboot; of another the address was taken away.
	gone, changed := before[0], before[1]
	if err := plumb.RemoveNetns(gone.Netns); err != nil {
		t.Fatal(err)
	}
	w.ns.Exec("nsenter", "--net="+changed.Netns, "ip", "address", "flush", "dev", "eth0")
	w.start()
	w.warmHelper()
	realtest.Eventually(t, wait, "slots that are not as they were made to be ended", func() bool {
		for _, l := range []*ipam.Lease{gone, changed} {
			if s := w.program.book.Slot(l.ID); s != nil && s.Broken == "" {
				return false
			}
		}
		return true
	})
	for _, l := range w.settled(4) {
		if l.ID == gone.ID || l.ID == changed.ID {
			t.Errorf("it is ready again: %+v", l)
		}
	}
	for _, l := range before[2:] { // what is as it was made stays
		if now, err := w.program.book.Lease(l.ID); err != nil || now.State != ipam.Bound {
			t.Errorf("a slot as it was made: %+v, %v", now, err)
		}
	}
	if now, err := w.program.book.Lease(given.ID); err != nil || now.State != ipam.Bound || !slices.Contains(w.namespaces(), given.Netns) {
		t.Errorf("the sandbox's: %+v, %v", now, err)
	}
	for _, path := range others {
		if _, err := os.Lstat(path); err != nil {
			t.Errorf("another's namespace: %v", err)
		}
	}
}

// M10: slots that are reserved when the daemon ends are finished by the next one, with the addresses
// that they have.
func TestM10WhatWasBegunIsFinished(t *testing.T) {
	t.Parallel()
	w := newWorld(t, quick)
	helper := w.warmHelper()
	helper.signal(syscall.SIGSTOP) // it has asked for work, and does none
	w.keepSlots(1400, &ipam.Warm{Size: 2})
	begun := make(map[string]bool)
	realtest.Eventually(t, wait, "two slots to be reserved", func() bool {
		for _, s := range w.program.book.Slots() {
			begun[s.LeaseID] = true
		}
		return len(begun) == 2
	})
	w.stopDaemon()
	_ = helper.cmd.Process.Kill()
	<-helper.done
	w.start()
	w.warmHelper()
	for _, l := range w.settled(2) {
		if !begun[l.ID] {
			t.Errorf("of another lease: %+v", l)
		}
	}
}

// M12: a book that has lost a sandbox's lease has lost whose its namespace is: it stays, as its address
// is quarantined.
func TestM12ANamespaceInUseStays(t *testing.T) {
	t.Parallel()
	w := newWorld(t, quick, func(c *config.Config) { c.Allocation.Quarantine = config.Duration(wait) })
	helper := w.warmHelper()
	w.keepSlots(1400, &ipam.Warm{Size: 1})
	w.settled(1)
	given := w.claim("a")
	w.settled(1)
	_ = helper.cmd.Process.Kill()
	<-helper.done
	w.stopDaemon()
	w.edit("DELETE FROM slots WHERE claimed = 1; DELETE FROM leases WHERE id = '" + given.ID + "'")
	w.edited = append(w.edited, netdb.HistoryIsAChain)
	w.start()
	if is := w.state(given.Addr.String()); is != api.Quarantined {
		t.Fatalf("the address is %s", is)
	}
	w.warmHelper()
	realtest.Eventually(t, wait, "it is said that it stays", func() bool {
		return strings.Contains(w.log.String(), "a namespace of no known warm slot stays\" netns="+given.Netns)
	})
	if !slices.Contains(w.namespaces(), given.Netns) || !strings.Contains(w.rt0(), given.HostInterface) {
		t.Errorf("namespaces %v, ports %s", w.namespaces(), w.rt0())
	}
}

// M12, L10: a row that cannot be read may be that of a sandbox in a slot: its namespace stays.
func TestM12ANamespaceOfAnUnreadableRowStays(t *testing.T) {
	t.Parallel()
	w := newWorld(t, quick)
	helper := w.warmHelper()
	w.keepSlots(1400, &ipam.Warm{Size: 1})
	w.settled(1)
	given := w.claim("a")
	w.settled(1)
	_ = helper.cmd.Process.Kill()
	<-helper.done
	w.stopDaemon()
	w.edit("PRAGMA ignore_check_constraints = 1; UPDATE leases SET state = 'dreaming' WHERE id = ?", given.ID)
	w.edited = append(w.edited, netdb.RowsAreReadable, netdb.RowsHaveTheirLast)
	w.start()
	w.warmHelper()
	realtest.Eventually(t, wait, "it is said that it stays", func() bool {
		return strings.Contains(w.log.String(), "a namespace of no known warm slot stays\" netns="+given.Netns)
	})
	if !slices.Contains(w.namespaces(), given.Netns) || !strings.Contains(w.rt0(), given.HostInterface) {
		t.Errorf("namespaces %v, ports %s", w.namespaces(), w.rt0())
	}
}

// M12: a book that is lost has lost which slots a sandbox was given, also where the new one is of the
// same runner: none of their namespaces is taken down, and none of their addresses is given.
func TestM12SlotsOfALostBook(t *testing.T) {
	t.Parallel()
	w := newWorld(t, quick, func(c *config.Config) {
		c.Allocation.Quarantine, c.Book.RunnerUID = config.Duration(wait), "lost-"+rand.Text()
	})
	helper := w.warmHelper()
	w.keepSlots(1400, &ipam.Warm{Size: 1})
	w.settled(1)
	given := w.claim("a")
	idle := w.settled(1)[0]
	_ = helper.cmd.Process.Kill()
	<-helper.done
	w.stopDaemon()
	for _, end := range []string{"", "-wal", "-shm"} {
		if err := os.Remove(w.cfg.Book.Path + end); err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
	}
	w.start()
	w.warmHelper()
	// Of many it is said once: those that follow within the minute are counted.
	realtest.Eventually(t, wait, "it is said that they stay", func() bool {
		return strings.Contains(w.log.String(), "a namespace of no known warm slot stays")
	})
	for _, l := range []*ipam.Lease{given, idle} {
		if is := w.state(l.Addr.String()); is != api.Quarantined {
			t.Errorf("%s is %s", l.Addr, is)
		}
		if !slices.Contains(w.namespaces(), l.Netns) || !strings.Contains(w.rt0(), l.HostInterface) {
			t.Errorf("namespaces %v, ports %s", w.namespaces(), w.rt0())
		}
	}
}

// M10: daemon and helpers are killed again and again while slots are made and claimed. There are
// never more than the bound, and in the end all are ready and no address is lost.
func TestM10KilledWhileSlotsAreMade(t *testing.T) {
	realtest.Long(t)
	t.Parallel()
	w := newWorld(t, quick)
	w.keepSlots(1400, &ipam.Warm{Size: 6})
	stop := w.killAgain(w.warmHelper, "plumb", "--slots")
	var given []*ipam.Lease
	for n := range 30 {
		given = append(given, w.claim(fmt.Sprintf("s-%d", n)))
		if n%5 == 4 { // all are to be made anew
			w.keepSlots(1300+n, &ipam.Warm{Size: 6})
		}
		if n%3 == 2 {
			l := given[0]
			given = given[1:]
			if _, _, err := w.program.watchdog.Release(ctx, ipam.Who{Actor: ipam.ByClient, Peer: "test", Reason: "released"}, l.ID, "", 0); err != nil {
				t.Fatal(err)
			}
		}
	}
	t.Logf("%d helpers were killed", stop())
	w.settled(6)
	if n := w.mostSlots(); n > 6 {
		t.Errorf("there were %d slots at once", n)
	}
	for _, l := range given {
		if _, _, err := w.program.watchdog.Release(ctx, ipam.Who{Actor: ipam.ByClient, Peer: "test", Reason: "released"}, l.ID, "", 0); err != nil {
			t.Fatal(err)
		}
	}
	w.keepSlots(1400, nil)
	w.settled(0)
	w.free(253)
}

// mostSlots is how many slots that no sandbox had there were at once, by the history.
func (w *world) mostSlots() (most int) {
	w.t.Helper()
	at := make(map[netip.Addr]bool)
	for since := int64(0); ; {
		changes, err := w.program.book.Changes(ctx, since, 1000)
		if err != nil {
			w.t.Fatal(err)
		}
		if len(changes) == 0 {
			return most
		}
		for _, c := range changes {
			since = c.Rev
			if c.Subject == ipam.OfLease {
				delete(at, c.Addr)
				if ipam.IsSlotUID(c.UID) && c.To != ipam.Free && c.To != ipam.Cooling {
					at[c.Addr] = true
				}
				most = max(most, len(at))
			}
		}
	}
}

// free waits until so many addresses of the first pool have no lease.
func (w *world) free(n uint64) {
	w.t.Helper()
	realtest.Eventually(w.t, wait, fmt.Sprintf("%d free addresses", n), func() bool {
		u, _ := w.program.book.Usage()
		return u[0].Free == n
	})
}

// M10: where slots cannot be made this is said once a step, no address is lost, and they are made
// once they can be.
func TestM10SlotsThatCannotBeMade(t *testing.T) {
	realtest.Long(t)
	t.Parallel()
	w := newWorld(t, quick)
	w.warmHelper()
	w.keepSlots(1400, &ipam.Warm{Size: 4}, ipam.Route{Destination: netip.MustParsePrefix("10.9.0.0/16"), Via: netip.MustParseAddr("192.0.2.1")}) // not on the link
	failed := func() int { return strings.Count(w.log.String(), "reason=slot_broken") }
	realtest.Eventually(t, wait, "three steps", func() bool { return failed() >= 4+2 })
	if n := failed(); n > 4+2 { // all at first, and then one a step
		t.Errorf("%d were begun", n)
	}
	if n := strings.Count(w.log.String(), "a warm slot could not be made"); n != 1 {
		t.Errorf("it is said %d times:\n%s", n, w.log.String())
	}
	w.settledNone()
	w.keepSlots(1400, &ipam.Warm{Size: 4})
	w.settled(4)
	realtest.Eventually(t, wait, "it is said that they are made again", func() bool { return strings.Contains(w.log.String(), "warm slots are made again") })
	w.keepSlots(1400, nil)
	w.settled(0)
	w.free(253)
}

// settledNone waits until there is no slot's lease, namespace or port.
func (w *world) settledNone() {
	w.t.Helper()
	realtest.Eventually(w.t, wait, "nothing to be left of slots that could not be made", func() bool {
		u, _ := w.program.book.Usage()
		return u[0].Free == 253 && len(w.namespaces()) == 0 && w.rt0() == ""
	})
}
