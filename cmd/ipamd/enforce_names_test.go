package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/enforce"
	"github.com/ipamd/ipamd/internal/nstest"
	"github.com/ipamd/ipamd/internal/realtest"
)

// named gives a sandbox a lease and binds it to a new port of that name, or to the name before there
// is a link of it. It becomes a port of rt0 behind the bind: a pass in between would take it for
// that of an earlier lease with the name.
func (w *world) named(sandbox, name string, linked bool) (api.Lease, *nstest.Port) {
	w.t.Helper()
	l := w.allocate(sandbox).Leases[0]
	p := w.ns.Port("rt0", l.Address+"/24")
	w.ns.Exec("ip", "link", "set", p.HostName, "nomaster", "down")
	rename := func() {
		w.ns.Exec("ip", "link", "set", p.HostName, "name", name, "up")
		p.HostName = name
	}
	where := api.BindRequest{HostInterface: name, MAC: p.MAC.String()}
	if linked {
		rename()
		where.Netns = p.NS.Path()
	}
	if _, err := w.client.Bind(ctx, l.ID, where); err != nil {
		w.t.Fatal(err)
	}
	if !linked {
		rename()
	}
	w.ns.Exec("ip", "link", "set", name, "master", "rt0")
	return l, p
}

// keptFrom waits until the rules follow from the book, and an address is no port's, and wants it
// to be kept from those without a lease nevertheless. A comparison that began before the bind of
// the name may end after it.
func (w *world) keptFrom(addr, port string) {
	w.t.Helper()
	realtest.Eventually(w.t, wait, addr+" not to be allowed on "+port, func() bool {
		set := w.nft("list", "set", "bridge", enforce.TableName, "ipv4")
		return w.asWished() && !strings.Contains(set, " "+addr+",") && !strings.Contains(set, " "+addr+" ")
	})
	if taken := w.nft("list", "set", "bridge", enforce.TableName, "taken4"); !strings.Contains(taken, addr) {
		w.t.Errorf("%s is not kept: %s", addr, taken)
	}
}

// TestE8AnOldNameAfterABoot: after a boot no link is that which a lease recorded, and the name
// of a hibernated sandbox's port may be another's: one that was bound to it since, to its link or
// before there was one.
func TestE8AnOldNameAfterABoot(t *testing.T) {
	t.Parallel()
	w := newWorld(t, enforced)
	old, names := map[bool]api.Lease{}, map[bool]string{}
	for _, linked := range []bool{true, false} {
		l, at := w.plugIn(fmt.Sprint("hibernates ", linked))
		if _, err := w.client.Pause(ctx, l.ID, api.PauseRequest{Mode: api.Hibernate}); err != nil {
			t.Fatal(err)
		}
		at.Close()
		old[linked], names[linked] = l, at.HostName
	}
	w.stopDaemon()
	w.edit(`UPDATE book SET boot_id = ?1; UPDATE leases SET created_boot_id = ?1, since_boot_id = ?1, plug = json_set(plug, '$.boot', ?1) WHERE plug != '';
		UPDATE changes SET boot_id = ?1; UPDATE pools SET created_boot_id = ?1`, "00000000-0000-4000-8000-000000000001")
	w.start()
	for linked, name := range names {
		l, p := w.named(fmt.Sprint("new ", linked), name, linked)
		realtest.Eventually(t, wait, l.Address+" to have rules", func() bool { return w.ruled(p, l.Address) })
		w.keptFrom(old[linked].Address, p.HostName)
	}
}

// TestE8ANameOfAPortThatNeverCame: a lease was bound to a name before there was such a port,
// which then is another sandbox's.
func TestE8ANameOfAPortThatNeverCame(t *testing.T) {
	t.Parallel()
	w := newWorld(t, enforced)
	never := w.allocate("never").Leases[0]
	if _, err := w.client.Bind(ctx, never.ID, api.BindRequest{HostInterface: "veth99", MAC: "02:00:00:00:aa:01"}); err != nil {
		t.Fatal(err)
	}
	l, p := w.named("new", "veth99", true)
	w.keptFrom(never.Address, p.HostName)
	if !w.ruled(p, l.Address) {
		t.Errorf("%s has no rules", l.Address)
	}
}
