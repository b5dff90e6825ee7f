package main

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/client"
	"github.com/ipamd/ipamd/internal/nstest"
	"github.com/ipamd/ipamd/plumb"
)

// everyLease are also those that cool, and the book's revision.
func (w *world) everyLease() ([]api.Lease, int64) {
	w.t.Helper()
	list, err := w.client.Leases(w.t.Context(), client.LeaseFilter{})
	if err != nil {
		w.t.Fatal(err)
	}
	return list.Leases, list.Revision
}

// N7: an ADD that cannot succeed costs no address: what can be known before is refused before
// anything is reserved, so that none has to rest for a cooldown behind each retry.
func TestN7ARefusedAddReservesNothing(t *testing.T) {
	t.Parallel()
	w := prepare(t, "10.8.64.0/24", v6More+"[[pool]]\nname = 'six'\nprefix = 'fd00:9::/64'\n")
	w.edit("cooldown = '200ms'\ncooldown_min = '100ms'", "cooldown = '1h'\ncooldown_min = '1h'")
	w.start()
	box, has, off := nstest.New(t), w.ns.Port("rt0"), nstest.New(t)
	off.Exec("sysctl", "-qw", "net.ipv6.conf.all.disable_ipv6=1")
	elsewhere := w.dir + "/elsewhere"
	if err := os.WriteFile(elsewhere, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount(box.Path(), elsewhere, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(elsewhere, unix.MNT_DETACH) })
	foreign := plumb.HostName(owner{"n", "foreign", "eth0"}.plug())
	w.ns.Exec("ip", "link", "add", foreign, "type", "bridge")

	for name, c := range map[string]struct {
		container, netns, ifname, more, args string

		code uint
		says string
	}{
		"a path elsewhere":               {"", elsewhere, "", "", "", types.ErrInvalidNetNS, "CNI_NETNS"},
		"no namespace":                   {"", "/dev/null", "", "", "", types.ErrInvalidNetNS, "CNI_NETNS"},
		"the host's own":                 {"", w.ns.Path(), "", "", "", types.ErrInvalidNetNS, "CNI_NETNS"},
		"one of another network":         {"", has.NS.Path(), "", "", "", codeRefused, "eth0"},
		"IPv6 is off":                    {"", off.Path(), "", `, "family": "v6"`, "", types.ErrInvalidNetNS, "disable_ipv6"},
		"IPv6 is off, and both wanted":   {"", off.Path(), "", `, "family": "dual"`, "", types.ErrInvalidNetNS, "disable_ipv6"},
		"IPv6 is off, and a pool of it":  {"", off.Path(), "", `, "pool": "six"`, "", types.ErrInvalidNetNS, "disable_ipv6"},
		"IPv6 is off, and one is wanted": {"", off.Path(), "", "", "IP=10.8.64.9,fd00:8::9", types.ErrInvalidNetNS, "disable_ipv6"},
		"a MAC":                          {"", box.Path(), "", `, "runtimeConfig": {"mac": "pear"}`, "", types.ErrInvalidNetworkConfig, "runtimeConfig.mac"},
		"a group's MAC":                  {"", box.Path(), "", "", "MAC=ff:ff:ff:ff:ff:ff", types.ErrInvalidEnvironmentVariables, "MAC of CNI_ARGS"},
		"no MAC in CNI_ARGS":             {"", box.Path(), "", "", "MAC=zz", types.ErrInvalidEnvironmentVariables, "MAC of CNI_ARGS"},
		"no address in CNI_ARGS":         {"", box.Path(), "", "", "IP=bogus", types.ErrInvalidEnvironmentVariables, "IP of CNI_ARGS"},
		"an interface that none has":     {"", box.Path(), "lo", "", "", types.ErrInvalidEnvironmentVariables, "CNI_IFNAME"},
		"a link of the port's name":      {"foreign", box.Path(), "", "", "", codeRefused, foreign},
	} {
		_, before := w.everyLease()
		container, ifname := c.container, c.ifname
		if container == "" {
			container = "wrong"
		}
		if ifname == "" {
			ifname = "eth0"
		}
		conf := fmt.Sprintf(`{"cniVersion": "1.1.0", "name": "n", "type": "ipamd", "socket": %q%s}`, w.socket, c.more)
		_, err := w.plugin("ADD", conf, "CNI_CONTAINERID="+container, "CNI_NETNS="+c.netns, "CNI_IFNAME="+ifname, "CNI_ARGS="+c.args)
		if code(err) != c.code || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want code %d and %s", name, err, c.code, c.says)
		}
		if left, now := w.everyLease(); len(left) > 0 || now != before {
			t.Errorf("%s: the book went from revision %d to %d, and has %+v", name, before, now, left)
		}
	}
	if left := w.ports(); left != has.HostName {
		t.Errorf("left are the ports %s", left)
	}
	// What is refused of a container that has its port costs nothing either.
	if _, err := w.plugged("ADD", "two", box.Path(), ""); err != nil {
		t.Fatal(err)
	}
	_, before := w.everyLease()
	if _, err := w.plugged("ADD", "two", nstest.New(t).Path(), `, "family": "v6"`); code(err) != codeRefused {
		t.Errorf("in a second namespace: %v", err)
	}
	if left, now := w.everyLease(); len(left) != 1 || now != before {
		t.Errorf("after that there are %+v", left)
	}
	// Nor is a family that is switched off a reason to refuse the other.
	if _, err := w.plugged("ADD", "four", off.Path(), ""); err != nil {
		t.Errorf("IPv4 where IPv6 is off: %v", err)
	}
}
