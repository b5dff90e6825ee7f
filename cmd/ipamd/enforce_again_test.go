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

// A cniBox is a sandbox with both families whose port was made as CNI does, with leases that may not have
// ended with it.
type cniBox struct {
	ns     *nstest.NS
	link   string
	leases []api.Lease
	where  api.BindRequest
}

// cniBox makes one, and has its leases bound.
func (w *world) cniBox(sandbox, link string, index int) *cniBox {
	w.t.Helper()
	b := &cniBox{ns: nstest.New(w.t), link: link}
	w.asCNI(b.ns, link)
	if got := w.linkIndex(link); index != 0 && got != index {
		w.t.Fatalf("%s has index %d, want %d", link, got, index)
	}
	a, err := w.client.Allocate(ctx, api.AllocateRequest{Sandbox: sandbox, Family: api.Dual})
	if err != nil {
		w.t.Fatal(err)
	}
	far, err := b.ns.Netlink().LinkByName("eth0")
	if err != nil {
		w.t.Fatal(err)
	}
	b.leases, b.where = a.Leases, api.BindRequest{HostInterface: link, Netns: b.ns.Path(), MAC: far.Attrs().HardwareAddr.String()}
	w.bindBox(b)
	return b
}

func (w *world) bindBox(b *cniBox) {
	w.t.Helper()
	for _, l := range b.leases {
		w.bindTo(l.ID, b.where)
	}
}

// mayBe reports whether the rules have a port use any address of a sandbox, or all of them.
func (w *world) mayBe(link string, b *cniBox) (any, all bool) {
	w.t.Helper()
	all = true
	for i, set := range []string{"ipv4", "ipv6"} {
		has := strings.Contains(w.nft("list", "set", "bridge", enforce.TableName, set), fmt.Sprintf("%q . %s . %s", link, b.where.MAC, b.leases[i].Address))
		any, all = any || has, all && has
	}
	return any, all
}

// TestE8AnIndexIsUsedAgain: the kernel gives an index again to a link that comes from another namespace, and a
// runtime gives a link to the next sandbox. The port is that of the sandbox which was bound to it last: it may
// not send as one of before whose lease has not ended, nor is it woken for that one's traffic.
func TestE8AnIndexIsUsedAgain(t *testing.T) {
	t.Parallel()
	w := dual(t, enforced)
	first := w.cniBox("first", "vethA", 0)
	index := w.linkIndex("vethA")
	gone := func(b *cniBox) {
		b.ns.Exec("ip", "link", "del", "eth0")
		b.ns.Delete()
	}
	alone := func(when, link string, its *cniBox, others ...*cniBox) {
		t.Helper()
		if _, all := w.mayBe(link, its); !all {
			t.Errorf("%s: the sandbox has not the rules of its port", when)
		}
		for _, o := range others {
			if any, _ := w.mayBe(link, o); any {
				t.Errorf("%s: the port may send as sandbox %s", when, o.leases[0].Sandbox)
			}
			if taken := w.nft("list", "set", "bridge", enforce.TableName, "taken4"); !strings.Contains(taken, o.leases[0].Address) {
				t.Errorf("%s: %s is not kept from others", when, o.leases[0].Address)
			}
		}
	}
	for _, l := range first.leases {
		if _, err := w.client.Pause(ctx, l.ID, api.PauseRequest{Mode: api.Hibernate, Wake: &api.WakePolicy{}}); err != nil {
			t.Fatal(err)
		}
	}
	w.stopDaemon() // the end of the first is seen by no daemon
	gone(first)
	w.start()
	second := w.cniBox("second", "vethB", index)
	alone("the bind is answered", "vethB", second, first)
	comparesSo := func(when string) {
		t.Helper()
		realtest.Eventually(t, wait, when+": the rules to follow from book and ports", w.asWished)
		alone(when, "vethB", second, first)
	}
	comparesSo("a comparison")
	w.ns.Exec("ip", "link", "set", "vethB", "nomaster")
	w.ns.Exec("ip", "link", "set", "vethB", "master", "rt0")
	comparesSo("plugged in again")
	w.ruleless() // of traffic to the first
	w.nft("flush", "table", "bridge", enforce.TableName)
	comparesSo("another program flushed the table")
	w.stopDaemon()
	w.start()
	comparesSo("a restart")
	w.ns.Exec("ip", "link", "set", "vethB", "name", "vethA")
	realtest.Eventually(t, wait, "the name of the first to be known", w.asWished)
	alone("with the name of the first", "vethA", second, first)

	gone(second)
	third := w.cniBox("third", "vethA", index)
	alone("under the name of before", "vethA", third, first, second)
	w.stopDaemon()
	w.edit(`UPDATE leases SET plug = json_set(plug, '$.at', 1 << 60) WHERE sandbox = 'third'`) // by a clock that counts anew since
	w.start()
	second.where.HostInterface = "vethA"
	w.bindBox(second)
	alone("passed on, and back", "vethA", second, first, third)

	for _, l := range third.leases {
		if _, err := w.client.Bind(ctx, l.ID, api.BindRequest{MAC: third.where.MAC}); err == nil || !strings.Contains(err.Error(), "port vethA is that of sandbox second") {
			t.Errorf("a bind that does not name the port is answered by %v", err)
		}
	}
	fourth := w.cniBox("fourth", "vethD", 0) // lives, while its link is made anew
	index = w.linkIndex("vethD")
	fourth.ns.Exec("ip", "link", "del", "eth0")
	w.ns.Exec("ip", "link", "add", "shift0", "type", "veth", "peer", "name", "shift1")
	w.ns.Exec("ip", "link", "add", "vethD", "type", "veth", "peer", "name", "eth0", "address", fourth.where.MAC, "netns", fourth.ns.Name())
	w.ns.Exec("ip", "link", "set", "vethD", "master", "rt0", "up")
	w.ns.Exec("ip", "link", "del", "shift0")
	stranger := nstest.New(t)
	for range index - w.linkIndex("rt0") - 1 {
		stranger.Exec("ip", "link", "add", "type", "bridge")
	}
	w.asCNI(stranger, "vethE")
	if got := w.linkIndex("vethE"); got != index {
		t.Fatalf("vethE has index %d, want %d", got, index)
	}
	w.stopDaemon()
	w.start() // has the rules made
	// At once, unless a busy kernel has not said yet which namespace a link leads to.
	realtest.Eventually(t, wait, "a link that has the index of a living sandbox's not to send as that", func() bool {
		any, _ := w.mayBe("vethE", fourth)
		return !any
	})
	w.bindBox(fourth)
	alone("bound to its link", "vethD", fourth, first, third)
}
