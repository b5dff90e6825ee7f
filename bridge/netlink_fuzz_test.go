package bridge

import (
	"bytes"
	"container/list"
	"encoding/binary"
	"errors"
	"log/slog"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/ipamd/ipamd/census"
)

// FuzzEachMessage: messages with lying lengths end the walk and nothing else,
// and where nothing lies the walk is the standard library's. Whatever a body
// is, each parser reads it or says why not; what it read has nothing in common
// with the socket's buffer, and is read the same when it is written down
// again.
func FuzzEachMessage(f *testing.F) {
	f.Add([]byte{16, 0, 0, 0, 3, 0, 2, 0, 1, 0, 0, 0, 0, 0, 0, 0})
	f.Add([]byte{3, 0, 0, 0})
	f.Add([]byte{15, 0, 0, 0, 3, 0, 2, 0, 1, 0, 0, 0, 0, 0, 0, 0})
	f.Add([]byte{17, 0, 0, 0, 3, 0, 2, 0, 1, 0, 0, 0, 0, 0, 0, 0})
	for _, said := range recorded(f) {
		f.Add(said)
	}
	for _, l := range []link{
		{index: 2, name: "rt0", kind: "bridge", vlan: 7, stp: true, forwardDelay: 1500, mtu: 1500, mac: []byte{2, 0, 0, 0, 0, 1}},
		{index: 3, name: "veth1", kind: "veth", master: 2, peer: 2, behind: unnamed},
	} {
		f.Add(datagram(header{typ: unix.RTM_NEWLINK}, l.body(f)))
	}
	f.Fuzz(func(t *testing.T, said []byte) {
		given := bytes.Clone(said)
		type message struct {
			header
			body []byte
		}
		var all []message
		eachMessage(said, func(h header, body []byte) { all = append(all, message{h, body}) })
		if std, err := syscall.ParseNetlinkMessage(said); err == nil {
			same := slices.EqualFunc(all, std, func(a message, b syscall.NetlinkMessage) bool {
				return a.header == header{b.Header.Type, b.Header.Flags, b.Header.Seq} && bytes.Equal(a.body, b.Data)
			})
			if !same {
				t.Fatalf("%d messages, and the standard library has %d: %v and %v", len(all), len(std), all, std)
			}
		}
		for _, m := range all {
			if l, ok := parsed(t, m.body, parseLink); ok {
				if again, err := parseLink(l.body(t)); err != nil || !l.same(again) {
					t.Fatalf("%+v became %+v, %v", l, again, err)
				}
			}
			if e, ok := parsed(t, m.body, parseEntry); ok && e.index != 0 {
				if again, err := parseEntry(e.body(t)); err != nil || e.addr != again.addr || !bytes.Equal(e.mac, again.mac) || e.index != again.index {
					t.Fatalf("%+v became %+v, %v", e, again, err)
				}
			}
			if a, ok := parsed(t, m.body, parseAddress); ok && a.prefix.IsValid() {
				if !a.prefix.Addr().IsValid() || a.prefix.Addr().Zone() != "" {
					t.Fatalf("%+v has an address that is none", a)
				}
			}
			if c, ok := parsed(t, m.body, parseConnection); ok {
				c.deletes(t)
			}
		}
		if !bytes.Equal(given, said) {
			t.Fatal("the datagram was changed")
		}
	})
}

// parsed reads a body twice, and spoils the first one's buffer.
func parsed[T any](t *testing.T, body []byte, parse func([]byte) (T, error)) (T, bool) {
	t.Helper()
	buffer := bytes.Clone(body)
	first, err := parse(buffer)
	for i := range buffer {
		buffer[i] ^= 0xff
	}
	second, again := parse(body)
	if (err == nil) != (again == nil) || !reflect.DeepEqual(first, second) {
		t.Fatalf("%x is read as %+v, %v; and then as %+v, %v", body, first, err, second, again)
	}
	return second, err == nil
}

// body writes a link as the kernel would.
func (l *link) body(t testing.TB) []byte {
	t.Helper()
	b, err := withAttributes(ifinfo(l.index, l.flags, 0), func(ae *netlink.AttributeEncoder) {
		ae.String(unix.IFLA_IFNAME, l.name)
		ae.Uint32(unix.IFLA_MTU, uint32(l.mtu))
		ae.Bytes(unix.IFLA_ADDRESS, l.mac)
		ae.Uint32(unix.IFLA_MASTER, uint32(l.master))
		ae.Uint32(unix.IFLA_LINK, uint32(l.peer))
		ae.Int32(unix.IFLA_LINK_NETNSID, int32(l.behind))
		ae.Nested(unix.IFLA_LINKINFO, func(info *netlink.AttributeEncoder) error {
			// A kind may come twice; the last one counts.
			info.String(unix.IFLA_INFO_KIND, "bridge")
			info.Nested(unix.IFLA_INFO_DATA, func(data *netlink.AttributeEncoder) error {
				stp, filters := uint32(0), uint8(0)
				if l.stp {
					stp = 1
				}
				if l.vlan != 0 {
					filters = 1
				}
				data.Uint32(unix.IFLA_BR_STP_STATE, stp)
				data.Uint32(unix.IFLA_BR_FORWARD_DELAY, l.forwardDelay)
				data.Uint8(unix.IFLA_BR_VLAN_FILTERING, filters)
				data.Uint16(unix.IFLA_BR_VLAN_DEFAULT_PVID, l.vlan)
				return nil
			})
			info.String(unix.IFLA_INFO_KIND, l.kind)
			return nil
		})
	})
	if err != nil {
		tooLong(t, len(l.name)+len(l.kind)+len(l.mac), err)
	}
	return b
}

// tooLong skips what no netlink message holds: n bytes of attributes. Anything
// else that cannot be written is a fault.
func tooLong(t testing.TB, n int, err error) {
	t.Helper()
	if n < 16<<10 {
		t.Fatalf("%d bytes cannot be written: %v", n, err)
	}
	t.Skip("too long for a message: ", err)
}

// body writes a row of the neighbour table as the kernel would.
func (e *entry) body(t testing.TB) []byte {
	t.Helper()
	b, err := withAttributes(ndmsg(unix.AF_UNSPEC, e.index), func(ae *netlink.AttributeEncoder) {
		if e.addr.IsValid() {
			ae.Bytes(unix.NDA_DST, e.addr.AsSlice())
		}
		ae.Bytes(unix.NDA_LLADDR, e.mac)
	})
	if err != nil {
		tooLong(t, len(e.mac), err)
	}
	return b
}

// deletes checks what would be said to have the connection deleted: the very
// tuple, zone and id that were read. Without a tuple the kernel would delete
// all connections of the host.
func (c *connection) deletes(t *testing.T) {
	t.Helper()
	ours, theirs := pair(t, unix.SOCK_SEQPACKET)
	k := &rtnl{fd: ours, buf: make([]byte, 64)}
	if err := k.deleteConnection(*c); !errors.Is(err, unix.EAGAIN) {
		tooLong(t, len(c.tuple)+len(c.zone)+len(c.id), err)
	}
	said := make([]byte, 1<<18)
	n, err := unix.Read(theirs, said)
	if err != nil {
		t.Fatal(err)
	}
	eachMessage(said[:n], func(h header, body []byte) {
		has := make(map[uint16][]byte)
		err := attributes(body, sizeofNfgenmsg, func(ad *netlink.AttributeDecoder) { has[ad.Type()] = ad.Bytes() })
		tuple, named := has[ctaTupleOrig]
		zone, zoned := has[ctaZone]
		switch {
		case err != nil:
			t.Fatalf("the request cannot be read: %v", err)
		case h.typ != conntrackDelete || body[0] != c.family:
			t.Fatalf("asked for %+v of family %d, and it is %+v", h, body[0], c)
		case !named || !bytes.Equal(tuple, c.tuple):
			t.Fatalf("the tuple is %x, and the connection is %+v", tuple, c)
		case zoned != (c.zone != nil) || !bytes.Equal(zone, c.zone) || !bytes.Equal(has[ctaID], c.id):
			t.Fatalf("it names %x, and the connection is %+v", has, c)
		}
	})
}

// FuzzAnswer: whatever the answer to any question of ours is, it ends, as
// something or as an error. It passes for whole only if it was closed, was not
// interrupted and holds no refusal: "could not ask" is not "not there".
func FuzzAnswer(f *testing.F) {
	questions := asking(0)
	names := slices.Sorted(maps.Keys(questions))
	said := recorded(f)
	for i, name := range names {
		f.Add(uint8(i), said[name])
		var interrupted, unfinished []byte
		eachMessage(said[name], func(h header, body []byte) {
			if h.typ != unix.NLMSG_DONE {
				unfinished = append(unfinished, datagram(h, body)...)
			}
			h.flags |= unix.NLM_F_DUMP_INTR
			interrupted = append(interrupted, datagram(h, body)...)
		})
		f.Add(uint8(i), interrupted)
		f.Add(uint8(i), unfinished)
	}
	none := bytes.Clone(said["netns-id"]) // an id that says that there is none
	copy(none[len(none)-4:], []byte{0xff, 0xff, 0xff, 0xff})
	f.Add(uint8(slices.Index(names, "netns-id")), none)
	f.Fuzz(func(t *testing.T, which uint8, said []byte) {
		if len(said) > 32<<10 {
			t.Skip("more than the kernel says at once")
		}
		name := names[int(which)%len(names)]
		ours, theirs := pair(t, unix.SOCK_SEQPACKET)
		k := &rtnl{fd: ours, buf: make([]byte, 64<<10)}
		const most = 11 // questions: ten tries of one, and another
		for q := range uint32(most) {
			if _, err := unix.Write(theirs, renumbered(said, q)); err != nil {
				break // the queue is full
			}
		}
		err := questions[name](k)
		switch {
		case errors.Is(err, errBroken):
			t.Fatalf("%s: %v", name, err)
		case k.seq > 2*most:
			t.Fatalf("%s: asked %d times", name, k.seq)
		case err != nil:
			return
		}
		closed := false
		eachMessage(said, func(h header, body []byte) {
			if h.seq != 1 {
				return
			}
			code := []byte{0, 0, 0, 0}
			copy(code, body)
			end := h.typ == unix.NLMSG_DONE || h.typ == unix.NLMSG_ERROR
			closed = end || h.flags&unix.NLM_F_MULTI == 0
			if h.flags&unix.NLM_F_DUMP_INTR != 0 {
				t.Fatalf("%s: an interrupted answer passed for whole", name)
			}
			if end && len(body) >= 4 && code[3] >= 0x80 {
				t.Fatalf("%s: refused with %x, which passed for an answer", name, code)
			}
		})
		if !closed {
			t.Fatalf("%s: an answer without an end passed for whole", name)
		}
	})
}

// renumbered has the messages that answer the first question answer a later
// one, and all others none.
func renumbered(said []byte, later uint32) []byte {
	var out []byte
	eachMessage(said, func(h header, body []byte) {
		if h.seq == 1 {
			h.seq += later
		} else {
			h.seq |= 1 << 31
		}
		out = append(out, datagram(h, body)...)
		for len(out)%unix.NLMSG_ALIGNTO != 0 {
			out = append(out, 0)
		}
	})
	return out
}

// FuzzNews: news is never believed, it only says where to look again. Whatever
// it is, nothing that was seen is let go, no port is forgotten, and what it is
// about is marked to be read: the news of a link, of an address of somebody
// who is looked at, and news that cannot be read. And whatever it was that had
// an address, one that nobody looks at, too, it was seen: at the next look it
// may be gone.
func FuzzNews(f *testing.F) {
	seeds := recorded(f)
	for name, k := range wantedNews() {
		f.Add(k.behind, seeds[name], []byte(nil))
		f.Add(false, seeds[name], fromSpace(recordedSpace))
		f.Add(false, seeds[name], fromSpace(recordedSpace+1))     // of which nobody has heard
		f.Add(false, seeds[name], unix.UnixRights(recordedSpace)) // some other control message
	}
	f.Fuzz(func(t *testing.T, behind bool, said, oob []byte) {
		b := known(t)
		before := b.cfg.Board.Census()
		nsid := sender(oob)
		if nsid != noSpace && !bytes.Contains(oob, fromSpace(nsid)[unix.CmsgLen(0)-8:]) {
			t.Fatalf("%x is taken to name the namespace %d", oob, nsid)
		}
		if behind {
			nsid = recordedSpace
		}
		eachMessage(said, func(h header, body []byte) {
			watched := b.spaces[nsid]
			began := time.Now()
			b.hear(nsid, h, body)
			switch h.typ {
			case unix.RTM_NEWLINK, unix.RTM_DELLINK:
				if l, err := parseLink(body); err == nil && nsid == noSpace && !b.linksAgain[l.index] && !b.lookAgain {
					t.Fatalf("the news of link %d is passed over", l.index)
				} else if err == nil && watched != nil && !b.spacesAgain[nsid] {
					t.Fatal("the news of a link behind a port is passed over")
				}
			case unix.RTM_NEWADDR, unix.RTM_DELADDR:
				if len(body) < 4 {
					break
				}
				a, err := parseAddress(body)
				if addr := a.prefix.Addr(); (err != nil || counts(addr)) && !b.lately.after(addr.Unmap(), began) {
					t.Fatalf("%v, %v, was there, and was not seen lately", addr, err)
				}
				ours := err != nil || a.index == recordedBridge || counts(a.prefix.Addr())
				if nsid == noSpace && ours && !b.hostAgain {
					t.Fatalf("the news of the host's %+v, %v, is passed over", a, err)
				}
				if watched != nil && !b.spacesAgain[nsid] {
					t.Fatal("the news of an address behind a port is passed over")
				}
			case unix.RTM_NEWNEIGH, unix.RTM_DELNEIGH:
				e, err := parseEntry(body)
				switch {
				case len(body) < unix.SizeofNdMsg:
				case err != nil && !b.neighboursLost:
					t.Fatalf("a neighbour that cannot be read (%v) is passed over", err)
				case err == nil && body[0] != unix.AF_BRIDGE && e.index == recordedBridge && counts(e.addr) && !b.stale(e.addr):
					t.Fatalf("the news of neighbour %v is passed over", e.addr)
				case err == nil && body[0] != unix.AF_BRIDGE && e.index == recordedBridge && counts(e.addr) &&
					e.state&unix.NUD_REACHABLE != 0 && !b.lately.after(e.addr.Unmap(), began):
					t.Fatalf("neighbour %v was reachable, and was not seen lately", e.addr)
				case err == nil && body[0] == unix.AF_BRIDGE && e.mac.String() == "02:00:00:00:00:01" && !b.stale(recordedGuest):
					t.Fatal("the news of where a neighbour's MAC is, is passed over")
				}
			}
		})
		if b.ports[recordedPort] == nil || len(b.ports) != 2 {
			t.Fatalf("a port is forgotten: %v", b.ports)
		}
		if s := b.spaces[recordedSpace]; s == nil && !b.linksAgain[recordedPort] {
			t.Fatal("the namespace behind a port is let go, and the port is not looked at again")
		}
		_ = b.tell(true)
		after := b.cfg.Board.Census()
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
	memory := &lately{since: time.Now()}
	b := &Bridge{
		cfg: cfg, lately: memory, alarm: &alarm{fd: -1}, mu: newFairMutex(), moves: moves{changed: make(chan struct{})},
		heard: make(map[netip.Addr]answering), shares: make(map[int]*list.List),
		netns: newReport(cfg, census.Netns, memory), host: newReport(cfg, census.Host, memory),
		neighbour: newReport(cfg, census.Neighbour, memory), answers: newReport(cfg, census.Probe, memory),
	}
	b.forget()
	b.link = &link{index: recordedBridge, name: "rt0", kind: "bridge", flags: unix.IFF_UP | unix.IFF_LOWER_UP, behind: noSpace}
	b.lost = false
	b.setPort(&link{index: recordedPort, name: "veth1", kind: "veth", master: recordedBridge, peer: 2, behind: recordedSpace})
	b.setPort(&link{index: 4, name: "tap0", kind: "tun", master: recordedBridge, behind: noSpace})
	b.netns.see(b.ports[recordedPort].space.scope(), []census.Sighting{{Addr: recordedGuest, Port: "veth1"}, {Addr: recordedGuest6, Port: "veth1"}})
	b.neighbour.see(recordedGuest.String(), []census.Sighting{{Addr: recordedGuest, Port: "veth1"}})
	b.rememberNeighbour(recordedGuest, "02:00:00:00:00:01")
	b.host.see(hostScope, []census.Sighting{{Addr: netip.MustParseAddr("10.8.0.1"), Port: "rt0"}})
	clear(b.linksAgain)
	clear(b.spacesAgain)
	if err := b.tell(true); err != nil {
		t.Fatal(err)
	}
	return b
}
