package nstest_test

import (
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/ipamd/ipamd/internal/nstest"
)

func TestPortsReachEachOther(t *testing.T) {
	ns := nstest.New(t)
	ns.Bridge("rt0", "10.8.0.1/24", "fd00:8::1/64")
	a := ns.Port("rt0", "10.8.0.2/24", "fd00:8::2/64")
	b := ns.Port("rt0", "10.8.0.3/24", "fd00:8::3/64")
	reach(t, a.NS, b.NS, "10.8.0.3")
	reach(t, a.NS, b.NS, "fd00:8::3")
	reach(t, a.NS, ns, "10.8.0.1")
	reach(t, ns, b.NS, "fd00:8::3")
	a.DelAddr("10.8.0.2/24")
	if out := a.NS.Exec("ip", "-o", "addr", "show", "dev", "eth0"); strings.Contains(out, "10.8.0.2") {
		t.Errorf("the address is still there:\n%s", out)
	}
	b.Close()
	if out := ns.Exec("ip", "-o", "link", "show", "master", "rt0"); strings.Contains(out, b.HostName) {
		t.Errorf("the port is still there:\n%s", out)
	}
}

// reach connects from one namespace to an address of another.
func reach(t *testing.T, from, to *nstest.NS, addr string) {
	t.Helper()
	var l net.Listener
	var err error
	to.Do(func() { l, err = net.Listen("tcp", net.JoinHostPort(addr, "0")) })
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	from.Do(func() {
		c, err := net.DialTimeout("tcp", l.Addr().String(), time.Minute)
		if err != nil {
			t.Errorf("connect from %s to %s: %v", from.Name(), l.Addr(), err)
			return
		}
		c.Close()
	})
}

func TestNothingIsLeft(t *testing.T) {
	var paths []string
	t.Run("a test", func(t *testing.T) {
		ns := nstest.New(t)
		ns.Bridge("rt0")
		p := ns.Port("rt0")
		paths = append(paths, ns.Path(), p.NS.Path())
	})
	for _, p := range paths {
		if _, err := os.Lstat(p); !os.IsNotExist(err) {
			t.Errorf("%s is left: %v", p, err)
		}
	}
}
