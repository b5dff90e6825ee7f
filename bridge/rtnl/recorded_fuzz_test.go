package rtnl

import (
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ipamd/ipamd/internal/nstest"
	"github.com/ipamd/ipamd/internal/realtest"
)

// What the kernel said once is kept in testdata/netlink, a file for each
// question and each kind of news: the fuzzers begin with it, for chance never
// comes upon the dozens of attributes that a link has. With -record
// TestRecorded writes it anew.
var record = flag.Bool("record", false, "write the kernel's answers and news to testdata/netlink")

const recordings = "testdata/netlink"

// The recorded world: rt0, and a port whose far end is in the only namespace
// behind.
const (
	worldBridge = 2 // index; lo has 1
	worldPort   = 3
	worldSpace  = 0 // nsid
)

var worldGuest, worldGuest6 = netip.MustParseAddr("10.8.0.7"), netip.MustParseAddr("fd00:8::7")

// asking are the questions that production asks. file is open on a namespace.
func asking(file int) map[string]func(*Socket) error {
	return map[string]func(*Socket) error{
		"link":     func(k *Socket) error { _, err := k.LinkByName("rt0"); return err },
		"no-link":  func(k *Socket) error { _, err := k.Link(NoNetns, 4000); return err },
		"far-link": func(k *Socket) error { _, err := k.Link(worldSpace, 2); return err },
		"ports":    func(k *Socket) error { return k.PortsOf(worldBridge, func(*Link) {}) },
		"addresses": func(k *Socket) error {
			all, err := k.Addresses(NoNetns)
			for _, a := range all {
				if !a.Prefix.IsValid() {
					return fmt.Errorf("%w: listed %+v", errBroken, a)
				}
			}
			return err
		},
		"neighbours": func(k *Socket) (err error) {
			if e := k.Neighbours(worldBridge, func(e Entry) {
				if e.Index != worldBridge {
					err = fmt.Errorf("%w: listed %+v", errBroken, e)
				}
			}); err == nil {
				err = e
			}
			return err
		},
		"neighbour":  func(k *Socket) error { _, err := k.Neighbour(worldBridge, worldGuest); return err },
		"forwarding": func(k *Socket) error { _, err := k.Forwarding(worldBridge, 1, []byte{2, 0, 0, 0, 0, 1}); return err },
		"netns-id": func(k *Socket) error {
			id, err := k.NetnsID(file)
			if err == nil && id < 0 {
				return fmt.Errorf("%w: the namespace's id is %d", errBroken, id)
			}
			return err
		},
		"no-netns-id": func(k *Socket) error { _, err := k.NetnsID(4000); return err },
		"change":      func(k *Socket) error { return k.AddAddress(worldBridge, netip.MustParsePrefix("10.8.1.1/24")) },
		"count":       func(k *Socket) error { _, err := k.CountConnections(); return err },
		"tracked": func(k *Socket) error {
			return k.dump(conntrackGet, make([]byte, sizeofNfgenmsg), func(body []byte) error {
				_, err := parseConnection(body)
				return err
			})
		},
	}
}

// errBroken is a promise that a question's caller was given and that was not
// kept. The kernel never says so.
var errBroken = errors.New("broken promise")

// The kernel of today says what was recorded; else the fuzzers begin in the
// past.
func TestRecorded(t *testing.T) {
	realtest.Need(t, "nft")
	ns := nstest.New(t)
	ns.Bridge("rt0", "10.8.0.1/24", "fd00:8::1/64")
	ns.Exec("nft", "table inet t { chain c { type filter hook output priority 0; ct state new counter; }; }")
	var n *News
	var routes, filter *Socket
	var all []error
	ns.Do(func() {
		var err error
		routes, err = Dial(unix.NETLINK_ROUTE)
		all = append(all, err)
		filter, err = Dial(unix.NETLINK_NETFILTER)
		all = append(all, err)
		n, err = Subscribe(Unassigned)
		all = append(all, err)
	})
	if err := errors.Join(all...); err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	defer routes.Close()
	defer filter.Close()

	p := ns.Port("rt0", worldGuest.String()+"/24", worldGuest6.String()+"/64")
	for _, guest := range []netip.Addr{worldGuest, worldGuest6} {
		realtest.Eventually(t, time.Minute, guest.String()+" is a neighbour", func() bool {
			ns.Do(func() {
				c, err := net.Dial("udp", netip.AddrPortFrom(guest, 9).String())
				if err == nil {
					_, err = c.Write([]byte("who are you"))
					c.Close()
				}
				if err != nil {
					t.Error(err)
				}
			})
			e, err := routes.Neighbour(worldBridge, guest)
			return err == nil && len(e.MAC) == 6
		})
	}
	file, err := os.Open(p.NS.Path())
	if err != nil {
		t.Fatal(err)
	}
	now := make(map[string][]byte)
	for name, ask := range asking(int(file.Fd())) {
		kernel := routes
		if name == "tracked" || name == "count" {
			kernel = filter
		}
		now[name] = kernel.reply(t, request(t, ask))
	}
	file.Close()
	p.DelAddr(worldGuest.String() + "/24")
	p.Close()
	realtest.Eventually(t, time.Minute, "all kinds of news", func() bool {
		for _, fd := range []int{n.Links, n.Neighbours} {
			if _, err := n.Read(fd, MostAtOnce, func(nsid int, h Header, body []byte) {
				if name := newsName(nsid, h, body); name != "" && now[name] == nil {
					now[name] = datagram(h, body)
				}
			}); err != nil {
				t.Fatal(err)
			}
		}
		return len(now) == len(asking(0))+len(wantedNews())
	})
	if *record {
		for name, output := range now {
			if err := os.WriteFile(filepath.Join(recordings, name), output, 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	then := recorded(t)
	if a, b := slices.Sorted(maps.Keys(now)), slices.Sorted(maps.Keys(then)); !slices.Equal(a, b) {
		t.Errorf("received %v, and recorded are %v", a, b)
	}
	for name, output := range now {
		if a, b := kinds(output), kinds(then[name]); !slices.Equal(a, b) {
			t.Errorf("%s: messages of the types %v are said, and %v are recorded", name, a, b)
		}
	}
}

// wantedNews are the kinds of news: whose, and of which address family where
// that makes a difference.
func wantedNews() map[string]struct {
	typ    uint16
	behind bool
	family byte
} {
	type kind = struct {
		typ    uint16
		behind bool
		family byte
	}
	return map[string]kind{
		"news-link":          {unix.RTM_NEWLINK, false, unix.AF_UNSPEC},
		"news-link-port":     {unix.RTM_NEWLINK, false, unix.AF_BRIDGE},
		"news-link-gone":     {unix.RTM_DELLINK, false, unix.AF_UNSPEC},
		"news-link-behind":   {unix.RTM_NEWLINK, true, unix.AF_UNSPEC},
		"news-address4":      {unix.RTM_NEWADDR, true, unix.AF_INET},
		"news-address6":      {unix.RTM_NEWADDR, true, unix.AF_INET6},
		"news-address-gone":  {unix.RTM_DELADDR, true, unix.AF_INET},
		"news-neighbour4":    {unix.RTM_NEWNEIGH, false, unix.AF_INET},
		"news-neighbour6":    {unix.RTM_NEWNEIGH, false, unix.AF_INET6},
		"news-forwarding":    {unix.RTM_NEWNEIGH, false, unix.AF_BRIDGE},
		"news-not-forwarded": {unix.RTM_DELNEIGH, false, unix.AF_BRIDGE},
		"news-space":         {unix.RTM_NEWNSID, false, unix.AF_UNSPEC},
		"news-space-gone":    {unix.RTM_DELNSID, false, unix.AF_UNSPEC},
	}
}

func newsName(nsid int, h Header, body []byte) string {
	for name, k := range wantedNews() {
		if h.Type == k.typ && (nsid != NoNetns) == k.behind && len(body) > 0 && body[0] == k.family {
			return name
		}
	}
	return ""
}

// recorded reads the recordings.
func recorded(t testing.TB) map[string][]byte {
	t.Helper()
	files, err := os.ReadDir(recordings)
	if err != nil {
		t.Fatal(err)
	}
	out := make(map[string][]byte)
	for _, f := range files {
		if out[f.Name()], err = os.ReadFile(filepath.Join(recordings, f.Name())); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

// kinds are the types of the messages in a datagram, each once.
func kinds(output []byte) (types []uint16) {
	EachMessage(output, func(h Header, _ []byte) { types = append(types, h.Type) })
	slices.Sort(types)
	return slices.Compact(types)
}

// datagram writes a message as it came.
func datagram(h Header, body []byte) []byte {
	b := make([]byte, unix.NLMSG_HDRLEN, unix.NLMSG_HDRLEN+len(body))
	binary.NativeEndian.PutUint32(b[0:], uint32(unix.NLMSG_HDRLEN+len(body)))
	binary.NativeEndian.PutUint16(b[4:], h.Type)
	binary.NativeEndian.PutUint16(b[6:], h.flags)
	binary.NativeEndian.PutUint32(b[8:], h.seq)
	return append(b, body...)
}

// pair is a real socket between the code and the test, in the kernel's place.
// It never keeps anybody waiting: with nothing to read, reading is an error.
func pair(t testing.TB, kind int) (ours, theirs int) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, kind|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fds[0]); unix.Close(fds[1]) })
	return fds[0], fds[1]
}

// request is the first thing that a question says.
func request(t testing.TB, ask func(*Socket) error) []byte {
	t.Helper()
	ours, theirs := pair(t, unix.SOCK_SEQPACKET)
	if err := ask(&Socket{fd: ours, buf: make([]byte, 64<<10)}); !errors.Is(err, unix.EAGAIN) {
		t.Fatalf("it was not answered, and the answer is %v", err)
	}
	b := make([]byte, 64<<10)
	n, err := unix.Read(theirs, b)
	if err != nil {
		t.Fatal(err)
	}
	return b[:n]
}

// reply puts a request to the kernel and returns all that it says.
func (r *Socket) reply(t testing.TB, request []byte) (all []byte) {
	t.Helper()
	if _, err := unix.Write(r.fd, request); err != nil {
		t.Fatal(err)
	}
	for { // the kernel answered while it was asked
		n, _, err := unix.Recvfrom(r.fd, r.buf, unix.MSG_DONTWAIT)
		if errors.Is(err, unix.EAGAIN) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, r.buf[:n]...)
	}
}
