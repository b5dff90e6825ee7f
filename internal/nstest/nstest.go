// Package nstest makes network namespaces, bridges and ports for tests, out
// of the kernel's own: nothing here is pretended. Everything that a test made
// goes away with the test.
package nstest

import (
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/ipamd/ipamd/internal/realtest"
)

const namedDir = "/run/netns"

// An NS is a network namespace with a name under /run/netns, so that
// `ip netns exec` reaches it. Its methods fail the test on error and are safe
// for concurrent use, as far as the testing package allows it: those that may
// fail the test belong on the test's own goroutine.
type NS struct {
	t    testing.TB
	name string
	ns   netns.NsHandle
	nl   *netlink.Handle

	mu      sync.Mutex
	ports   int // made so far; names the next one
	deleted bool
	hidden  bool // has no name any more
}

// New makes a namespace with its loopback up and duplicate address detection
// off. It is gone when the test ends.
func New(t testing.TB) *NS {
	t.Helper()
	realtest.Root(t)
	n := &NS{t: t, name: newName()}
	if err := n.make(); err != nil {
		t.Fatalf("make network namespace %s: %v", n.name, err)
	}
	t.Cleanup(n.Delete)
	lo, err := n.nl.LinkByName("lo")
	if err == nil {
		err = n.nl.LinkSetUp(lo)
	}
	if err != nil {
		t.Fatalf("set lo up in %s: %v", n.name, err)
	}
	return n
}

// newName names the process, by which [sweep] knows whose it is.
func newName() string {
	return fmt.Sprintf("nstest-%d-%s", os.Getpid(), strings.ToLower(rand.Text()[:8]))
}

// sweep takes away the namespaces of processes that were killed, which deleted none: each
// later test that names all namespaces of the machine waits for them too.
func sweep() {
	left, _ := filepath.Glob(filepath.Join(namedDir, "nstest-*-*")) // the pattern is right
	for _, path := range left {
		pid, err := strconv.Atoi(strings.Split(filepath.Base(path), "-")[1])
		if err == nil && errors.Is(unix.Kill(pid, 0), unix.ESRCH) {
			_ = netns.DeleteNamed(filepath.Base(path)) // another process may be first
		}
	}
}

// shared has iproute2 make its folder what it is to be, before anything is mounted in it: what
// was mounted before, on a machine that shares no file system, could not be removed after.
var shared = sync.OnceValue(func() error {
	sweep()
	name := newName()
	for _, verb := range []string{"add", "delete"} {
		if out, err := exec.Command("ip", "netns", verb, name).CombinedOutput(); err != nil {
			return fmt.Errorf("ip netns %s %s: %w: %s", verb, name, err, out)
		}
	}
	return nil
})

// make works on a thread of its own: a namespace is a property of a thread.
func (n *NS) make() (err error) {
	if err := shared(); err != nil {
		return err
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	home, err := netns.Get()
	if err != nil {
		return err
	}
	defer home.Close()
	defer func() {
		if back := netns.Set(home); back != nil {
			panic("nstest: no way back to the first network namespace: " + back.Error())
		}
	}()
	if n.ns, err = netns.NewNamed(n.name); err != nil {
		return err
	}
	for _, which := range []string{"all", "default"} {
		f := filepath.Join("/proc/sys/net/ipv6/conf", which, "accept_dad")
		if err := os.WriteFile(f, []byte("0"), 0); err != nil {
			return err
		}
	}
	n.nl, err = netlink.NewHandle(unix.NETLINK_ROUTE)
	return err
}

// Delete takes the namespace away, with all links in it and the ports that
// lead to them. The kernel finishes that a moment later. Twice is fine, and
// the end of the test does it anyway.
func (n *NS) Delete() {
	n.t.Helper()
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.deleted {
		return
	}
	n.deleted = true
	if n.nl != nil {
		n.nl.Close()
	}
	if n.hidden {
		_ = n.ns.Close()
		return
	}
	if err := netns.DeleteNamed(n.name); err != nil {
		n.t.Errorf("delete network namespace %s: %v", n.name, err)
	}
	_ = n.ns.Close()
}

// Hide takes the name away, so that only this value leads to the namespace.
func (n *NS) Hide() {
	n.t.Helper()
	if err := netns.DeleteNamed(n.name); err != nil {
		n.t.Fatalf("hide network namespace %s: %v", n.name, err)
	}
	n.hidden = true
}

// Up sets a link up, also where the namespace is hidden.
func (n *NS) Up(link string) {
	n.t.Helper()
	l, err := n.nl.LinkByName(link)
	if err == nil {
		err = n.nl.LinkSetUp(l)
	}
	if err != nil {
		n.t.Fatalf("set %s up in %s: %v", link, n.name, err)
	}
}

// Name is the name that `ip netns` knows.
func (n *NS) Name() string { return n.name }

// Path is the file that stands for the namespace.
func (n *NS) Path() string { return filepath.Join(namedDir, n.name) }

// Netlink is an rtnetlink handle inside the namespace. It is closed with it.
func (n *NS) Netlink() *netlink.Handle { return n.nl }

// Do calls f on a thread inside the namespace. What f opens there stays
// there; goroutines that f starts do not run there.
func (n *NS) Do(f func()) {
	n.t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	home, err := netns.Get()
	if err != nil {
		n.t.Fatalf("find the thread's network namespace: %v", err)
	}
	defer home.Close()
	if err := netns.Set(n.ns); err != nil {
		n.t.Fatalf("enter network namespace %s: %v", n.name, err)
	}
	defer func() {
		if err := netns.Set(home); err != nil {
			panic("nstest: no way back to the first network namespace: " + err.Error())
		}
	}()
	f()
}

// Exec runs a program inside the namespace and returns what it printed.
func (n *NS) Exec(args ...string) string {
	n.t.Helper()
	realtest.Need(n.t, "ip")
	out, err := exec.Command("ip", append([]string{"netns", "exec", n.name}, args...)...).CombinedOutput()
	if err != nil {
		n.t.Fatalf("run %q in %s: %v\n%s", args, n.name, err, out)
	}
	return string(out)
}

// Bridge makes a bridge that is up, with a MAC of its own and the given
// addresses ("10.8.0.1/24"). STP is off, as the kernel has it by default, so
// a new port forwards at once whatever the forward delay.
func (n *NS) Bridge(name string, gateways ...string) {
	n.t.Helper()
	attrs := netlink.NewLinkAttrs()
	attrs.Name = name
	attrs.HardwareAddr = net.HardwareAddr{0x02, 0x42, 0, 0, 0, 1}
	attrs.Flags = net.FlagUp
	if err := n.nl.LinkAdd(&netlink.Bridge{LinkAttrs: attrs}); err != nil {
		n.t.Fatalf("make bridge %s in %s: %v", name, n.name, err)
	}
	for _, cidr := range gateways {
		n.AddAddr(name, cidr)
	}
}

// AddAddr puts an address on a link, ready at once.
func (n *NS) AddAddr(link, cidr string) {
	n.t.Helper()
	if err := n.nl.AddrAdd(n.addr(link, cidr)); err != nil {
		n.t.Fatalf("add %s to %s in %s: %v", cidr, link, n.name, err)
	}
}

// DelAddr takes an address off a link.
func (n *NS) DelAddr(link, cidr string) {
	n.t.Helper()
	if err := n.nl.AddrDel(n.addr(link, cidr)); err != nil {
		n.t.Fatalf("take %s off %s in %s: %v", cidr, link, n.name, err)
	}
}

func (n *NS) addr(link, cidr string) (netlink.Link, *netlink.Addr) {
	n.t.Helper()
	l, err := n.nl.LinkByName(link)
	if err != nil {
		n.t.Fatalf("look up link %s in %s: %v", link, n.name, err)
	}
	a, err := netlink.ParseAddr(cidr)
	if err != nil {
		n.t.Fatalf("parse address: %v", err)
	}
	a.Flags = unix.IFA_F_NODAD
	return l, a
}
