package bridge

import (
	"bytes"
	"encoding/binary"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ipamd/ipamd/bridge/rtnl"
	"github.com/ipamd/ipamd/census"
)

// The world of the recordings in rtnl: rt0, and a port whose far end is in the only
// namespace behind.
const (
	recordedBridge = 2 // index; lo has 1
	recordedPort   = 3
	recordedSpace  = 0 // nsid
)

var recordedGuest, recordedGuest6 = netip.MustParseAddr("10.8.0.7"), netip.MustParseAddr("fd00:8::7")

// FuzzNews: news is never believed, it only says where to look again. Whatever
// it is, nothing that was seen is dropped, no port is forgotten, and what it is
// about is marked to be read: the news of a link, of an address in a namespace
// that is looked at, and news that cannot be read. And whatever it was that had
// an address, one that is not looked at, too, it was seen: at the next look it
// may be gone.
func FuzzNews(f *testing.F) {
	files, err := filepath.Glob("rtnl/testdata/netlink/news-*")
	if err != nil || len(files) == 0 {
		f.Fatal("no news is recorded: ", err)
	}
	for _, file := range files {
		output, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(true, output, []byte(nil))
		f.Add(false, output, []byte(nil))
		f.Add(false, output, fromSpace(recordedSpace))
		f.Add(false, output, fromSpace(recordedSpace+1))     // that is not known
		f.Add(false, output, unix.UnixRights(recordedSpace)) // some other control message
	}
	f.Fuzz(func(t *testing.T, behind bool, output, oob []byte) {
		b := known(t)
		before := b.cfg.Board.(*census.Board).Census()
		nsid := rtnl.Sender(oob, rtnl.Unassigned)
		if nsid != rtnl.NoNetns && !bytes.Contains(oob, fromSpace(nsid)[unix.CmsgLen(0)-8:]) {
			t.Fatalf("%x is taken to name the namespace %d", oob, nsid)
		}
		if behind {
			nsid = recordedSpace
		}
		rtnl.EachMessage(output, func(h rtnl.Header, body []byte) {
			watched := b.netns.spaces[nsid]
			began := time.Now()
			b.receive(nsid, h, body)
			switch h.Type {
			case unix.RTM_NEWLINK, unix.RTM_DELLINK:
				if l, err := rtnl.ParseLink(body); err == nil && nsid == rtnl.NoNetns && !b.netns.linksAgain[l.Index] && !b.device.again {
					t.Fatalf("the news of link %d is passed over", l.Index)
				} else if err == nil && watched != nil && !b.netns.again[nsid] {
					t.Fatal("the news of a link behind a port is passed over")
				}
			case unix.RTM_NEWADDR, unix.RTM_DELADDR:
				if len(body) < 4 {
					break
				}
				a, err := rtnl.ParseAddress(body)
				if addr := a.Prefix.Addr(); (err != nil || rtnl.Assignable(addr)) && !b.recent.after(single(addr.Unmap()), began) {
					t.Fatalf("%v, %v, was there, and was not seen recently", addr, err)
				}
				ours := err != nil || a.Index == recordedBridge || rtnl.Assignable(a.Prefix.Addr())
				if nsid == rtnl.NoNetns && ours && !b.host.again {
					t.Fatalf("the news of the host's %+v, %v, is passed over", a, err)
				}
				if watched != nil && !b.netns.again[nsid] {
					t.Fatal("the news of an address behind a port is passed over")
				}
			case unix.RTM_NEWNEIGH, unix.RTM_DELNEIGH:
				e, err := rtnl.ParseEntry(body)
				switch {
				case len(body) < unix.SizeofNdMsg:
				case err != nil && !b.neighbour.lost:
					t.Fatalf("a neighbour that cannot be read (%v) is passed over", err)
				case err == nil && body[0] != unix.AF_BRIDGE && e.Index == recordedBridge && rtnl.Assignable(e.Addr) && !b.neighbour.stale(e.Addr):
					t.Fatalf("the news of neighbour %v is passed over", e.Addr)
				case err == nil && body[0] != unix.AF_BRIDGE && e.Index == recordedBridge && rtnl.Assignable(e.Addr) &&
					e.State&unix.NUD_REACHABLE != 0 && !b.recent.after(single(e.Addr.Unmap()), began):
					t.Fatalf("neighbour %v was reachable, and was not seen recently", e.Addr)
				case err == nil && body[0] == unix.AF_BRIDGE && e.MAC.String() == "02:00:00:00:00:01" && !b.neighbour.stale(recordedGuest):
					t.Fatal("the news of where a neighbour's MAC is, is passed over")
				}
			}
		})
		if b.netns.ports[recordedPort] == nil || len(b.netns.ports) != 2 {
			t.Fatalf("a port is forgotten: %v", b.netns.ports)
		}
		if s := b.netns.spaces[recordedSpace]; s == nil && !b.netns.linksAgain[recordedPort] {
			t.Fatal("the namespace behind a port is dropped, and the port is not looked at again")
		}
		_ = b.post(true)
		after := b.cfg.Board.(*census.Board).Census()
		if len(after.Seen) != len(before.Seen) || len(after.Silent) != 0 {
			t.Fatalf("seen were %v, and are %v; silent are %v", before.Seen, after.Seen, after.Silent)
		}
	})
}

// fromSpace is the control message that names the namespace of some news.
func fromSpace(nsid int) []byte {
	b := unix.UnixRights(nsid) // it is as long; level and type end its header
	binary.NativeEndian.PutUint32(b[unix.CmsgLen(0)-8:], unix.SOL_NETLINK)
	binary.NativeEndian.PutUint32(b[unix.CmsgLen(0)-4:], unix.NETLINK_LISTEN_ALL_NSID)
	return b[:unix.CmsgLen(4)]
}

// known is the recorded world as a Bridge without sockets remembers it.
func known(t *testing.T) *Bridge {
	t.Helper()
	board := census.NewBoard(census.Netns, census.Host, census.Neighbour)
	cfg := Config{Name: "rt0", Board: board, Log: slog.New(slog.DiscardHandler)}
	b := newBridge(cfg)
	b.wakeup, b.news = &wakeup{fd: -1}, &rtnl.News{Self: rtnl.Unassigned}
	b.forget()
	b.device.link = &rtnl.Link{Index: recordedBridge, Name: "rt0", Kind: "bridge", Flags: unix.IFF_UP | unix.IFF_LOWER_UP, Behind: rtnl.NoNetns}
	b.lost = false
	b.netns.setPort(b.wire(), &rtnl.Link{Index: recordedPort, Name: "veth1", Kind: "veth", Master: recordedBridge, Peer: 2, Behind: recordedSpace})
	b.netns.setPort(b.wire(), &rtnl.Link{Index: 4, Name: "tap0", Kind: "tun", Master: recordedBridge, Behind: rtnl.NoNetns})
	b.netns.see(b.netns.ports[recordedPort].space.scope, []census.Sighting{{Addr: recordedGuest, Port: "veth1"}, {Addr: recordedGuest6, Port: "veth1"}})
	b.neighbour.see(recordedGuest.String(), []census.Sighting{{Addr: recordedGuest, Port: "veth1"}})
	b.neighbour.remember(recordedGuest, "02:00:00:00:00:01")
	b.host.see(hostScope, []census.Sighting{{Addr: netip.MustParseAddr("10.8.0.1"), Port: "rt0"}})
	clear(b.netns.linksAgain)
	clear(b.netns.again)
	if err := b.post(true); err != nil {
		t.Fatal(err)
	}
	return b
}
