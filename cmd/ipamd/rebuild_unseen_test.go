package main

import (
	"fmt"
	"testing"
	"time"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/config"
	"github.com/ipamd/ipamd/internal/realtest"
)

// L13: a rebuild holds back the address of a lease of which nothing was ever seen: that nothing shows
// it does not end the quarantine. Its owner has it back by asking, and that it was never seen with it,
// also where the owner binds it again.
func TestL13RebuildKeepsWhatWasNeverSeen(t *testing.T) {
	t.Parallel()
	short := func(c *config.Config) { c.Allocation.Quarantine = config.Duration(time.Millisecond) }
	for name, owner := range map[string]func(*world, api.Lease, string){
		"its owner does not ask": nil,
		"its owner asks":         func(w *world, l api.Lease, _ string) {},
		"its owner binds it again": func(w *world, l api.Lease, mac string) {
			if _, err := w.client.Bind(ctx, l.ID, api.BindRequest{MAC: mac}); err != nil {
				w.t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, hasty, short)
			w.ns.Bridge("br9")
			off := w.ns.Port("br9") // no witness watches br9
			l := w.boundAs("off", api.BindRequest{MAC: off.MAC.String()}, nil)
			off.AddAddr(l.Address + "/24")
			w.stopDaemon()
			if _, err := w.rebuild(force); err != nil {
				t.Fatal(err)
			}
			w.start()
			w.staysAs(l, api.Quarantined, "rebuilt")
			if owner == nil {
				return
			}
			if again := w.allocate("off").Leases[0]; again.ID != l.ID {
				t.Fatalf("its owner has %+v, and had %+v", again, l)
			}
			owner(w, l, off.MAC.String())
			w.staysAs(l, api.Bound, "its owner has it again")
		})
	}
}

// L13: a book of before, such as a backup of this boot, may record a link and a namespace whose names are
// others' by now. Those are not taken over: what has the names is recorded anew.
func TestL13RebuildRecordsAnewWhatHasTheNames(t *testing.T) {
	t.Parallel()
	for name, older := range map[string]string{"a link": `'$.index', 999`, "a namespace": `'$.inode', 999`} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, hasty)
			p := w.ns.Port("rt0")
			l := w.boundAs("a", api.BindRequest{HostInterface: p.HostName, Netns: p.NS.Path(), MAC: p.MAC.String()}, nil)
			p.AddAddr(l.Address + "/24")
			w.seenInPlace(l)
			was, err := w.program.book.Lease(l.ID)
			if err != nil {
				t.Fatal(err)
			}
			w.stopDaemon()
			w.edit(fmt.Sprintf(`UPDATE leases SET plug = json_set(plug, %s)`, older))
			if _, err := w.rebuild(force); err != nil {
				t.Fatal(err)
			}
			w.start()
			realtest.Eventually(t, wait, "what has the names to be recorded", func() bool {
				w.pass()
				now, err := w.program.book.Lease(l.ID)
				return err == nil && now.State == "bound" && now.Plug.Index == was.Plug.Index && (now.Plug.Inode == was.Plug.Inode || name == "a namespace" && now.Plug.Inode == 0)
			})
		})
	}
}

// L13: what no witness sees at a rebuild is looked for. The address of a machine that has its tap open is
// held back until the tap is gone, whether it is a port or not; and one that is beside the bridge, and of
// which the old book says nothing, is not given.
func TestL13RebuildKeepsWhatNoWitnessSees(t *testing.T) {
	t.Parallel()
	short := func(c *config.Config) { c.Allocation.Quarantine = config.Duration(time.Millisecond) }
	for name, loose := range map[string]bool{"its tap is a port, opened again": false, "its tap is unplugged": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, hasty, short)
			closeIt := w.openTap("tap0")
			machine := w.boundAs("vm", api.BindRequest{HostInterface: "tap0", MAC: "02:00:00:00:77:01"}, nil)
			p := w.ns.Port("rt0")
			unknown := w.boundAs("unknown", api.BindRequest{HostInterface: p.HostName}, nil)
			p.AddAddr(unknown.Address + "/24")
			w.seenInPlace(machine, unknown)
			w.stopDaemon()
			w.edit(`DELETE FROM leases WHERE sandbox = 'unknown'; DELETE FROM changes`)
			w.ns.Exec("ip", "link", "set", p.HostName, "nomaster")
			if loose {
				w.ns.Exec("ip", "link", "set", "tap0", "nomaster")
			} else {
				closeIt()
				closeIt = w.openTap("tap0")
			}
			if _, err := w.rebuild(force); err != nil {
				t.Fatal(err)
			}
			w.start()
			w.staysAs(machine, api.Quarantined, "rebuilt, and its tap is open")
			w.staysAs(unknown, api.Quarantined, "rebuilt, and beside the bridge")
			closeIt()
			p.Close()
			realtest.Eventually(t, wait, "both to end", func() bool {
				w.pass()
				return w.state(machine.Address) != api.Quarantined && w.state(unknown.Address) != api.Quarantined
			})
		})
	}
}
