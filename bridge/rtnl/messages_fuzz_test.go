package rtnl

import (
	"bytes"
	"errors"
	"maps"
	"reflect"
	"slices"
	"syscall"
	"testing"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
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
	for _, output := range recorded(f) {
		f.Add(output)
	}
	for _, l := range []Link{
		{Index: 2, Name: "rt0", Kind: "bridge", VLAN: 7, STP: true, ForwardDelay: 1500, MTU: 1500, MAC: []byte{2, 0, 0, 0, 0, 1}},
		{Index: 3, Name: "veth1", Kind: "veth", Master: 2, Peer: 2, Behind: Unassigned},
	} {
		f.Add(datagram(Header{Type: unix.RTM_NEWLINK}, l.body(f)))
	}
	f.Fuzz(func(t *testing.T, output []byte) {
		given := bytes.Clone(output)
		type message struct {
			Header
			body []byte
		}
		var all []message
		EachMessage(output, func(h Header, body []byte) { all = append(all, message{h, body}) })
		if std, err := syscall.ParseNetlinkMessage(output); err == nil {
			same := slices.EqualFunc(all, std, func(a message, b syscall.NetlinkMessage) bool {
				return a.Header == Header{b.Header.Type, b.Header.Flags, b.Header.Seq} && bytes.Equal(a.body, b.Data)
			})
			if !same {
				t.Fatalf("%d messages, and the standard library has %d: %v and %v", len(all), len(std), all, std)
			}
		}
		left := 0 // of a truncated datagram there is the same, and what its end leaves of one more
		eachMessage(output, true, func(h Header, body []byte) {
			if left < len(all) && (h != all[left].Header || !bytes.Equal(body, all[left].body)) {
				t.Fatalf("message %d of a truncated datagram is %v %x, and was %v", left, h, body, all[left])
			}
			left++
		})
		if left != len(all) && left != len(all)+1 {
			t.Fatalf("%d messages, and %d of the datagram as a truncated one", len(all), left)
		}
		for _, m := range all {
			if l, ok := parsed(t, m.body, ParseLink); ok {
				if again, err := ParseLink(l.body(t)); err != nil || !l.Same(again) {
					t.Fatalf("%+v became %+v, %v", l, again, err)
				}
			}
			if e, ok := parsed(t, m.body, ParseEntry); ok && e.Index != 0 {
				if again, err := ParseEntry(e.body(t)); err != nil || e.Addr != again.Addr || !bytes.Equal(e.MAC, again.MAC) || e.Index != again.Index {
					t.Fatalf("%+v became %+v, %v", e, again, err)
				}
			}
			if a, ok := parsed(t, m.body, ParseAddress); ok && a.Prefix.IsValid() {
				if !a.Prefix.Addr().IsValid() || a.Prefix.Addr().Zone() != "" {
					t.Fatalf("%+v has an address that is none", a)
				}
			}
			if c, ok := parsed(t, m.body, parseConnection); ok {
				c.deletes(t)
			}
		}
		if !bytes.Equal(given, output) {
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
func (l *Link) body(t testing.TB) []byte {
	t.Helper()
	b, err := withAttributes(ifinfo(l.Index, l.Flags, 0), func(ae *netlink.AttributeEncoder) {
		ae.String(unix.IFLA_IFNAME, l.Name)
		ae.Uint32(unix.IFLA_MTU, uint32(l.MTU))
		ae.Bytes(unix.IFLA_ADDRESS, l.MAC)
		ae.Uint32(unix.IFLA_MASTER, uint32(l.Master))
		ae.Uint32(unix.IFLA_LINK, uint32(l.Peer))
		ae.Int32(unix.IFLA_LINK_NETNSID, int32(l.Behind))
		ae.Nested(unix.IFLA_LINKINFO, func(info *netlink.AttributeEncoder) error {
			// A kind may come twice; the last one counts.
			info.String(unix.IFLA_INFO_KIND, "bridge")
			info.Nested(unix.IFLA_INFO_DATA, func(data *netlink.AttributeEncoder) error {
				stp, filters := uint32(0), uint8(0)
				if l.STP {
					stp = 1
				}
				if l.VLAN != 0 {
					filters = 1
				}
				data.Uint32(unix.IFLA_BR_STP_STATE, stp)
				data.Uint32(unix.IFLA_BR_FORWARD_DELAY, l.ForwardDelay)
				data.Uint8(unix.IFLA_BR_VLAN_FILTERING, filters)
				data.Uint16(unix.IFLA_BR_VLAN_DEFAULT_PVID, l.VLAN)
				return nil
			})
			info.String(unix.IFLA_INFO_KIND, l.Kind)
			return nil
		})
	})
	if err != nil {
		tooLong(t, len(l.Name)+len(l.Kind)+len(l.MAC), err)
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
func (e *Entry) body(t testing.TB) []byte {
	t.Helper()
	b, err := withAttributes(ndmsg(unix.AF_UNSPEC, e.Index), func(ae *netlink.AttributeEncoder) {
		if e.Addr.IsValid() {
			ae.Bytes(unix.NDA_DST, e.Addr.AsSlice())
		}
		ae.Bytes(unix.NDA_LLADDR, e.MAC)
	})
	if err != nil {
		tooLong(t, len(e.MAC), err)
	}
	return b
}

// deletes checks what would be said to have the connection deleted: the very
// tuple, zone and id that were read. Without a tuple the kernel would delete
// all connections of the host.
func (c *connection) deletes(t *testing.T) {
	t.Helper()
	ours, theirs := pair(t, unix.SOCK_SEQPACKET)
	k := &Socket{fd: ours, buf: make([]byte, 64)}
	if err := k.DeleteConnection(*c); !errors.Is(err, unix.EAGAIN) {
		tooLong(t, len(c.tuple)+len(c.zone)+len(c.ID), err)
	}
	output := make([]byte, 1<<18)
	n, err := unix.Read(theirs, output)
	if err != nil {
		t.Fatal(err)
	}
	EachMessage(output[:n], func(h Header, body []byte) {
		has := make(map[uint16][]byte)
		err := attributes(body, sizeofNfgenmsg, func(ad *netlink.AttributeDecoder) { has[ad.Type()] = ad.Bytes() })
		tuple, named := has[ctaTupleOrig]
		zone, zoned := has[ctaZone]
		switch {
		case err != nil:
			t.Fatalf("the request cannot be read: %v", err)
		case h.Type != conntrackDelete || body[0] != c.family:
			t.Fatalf("asked for %+v of family %d, and it is %+v", h, body[0], c)
		case !named || !bytes.Equal(tuple, c.tuple):
			t.Fatalf("the tuple is %x, and the connection is %+v", tuple, c)
		case zoned != (c.zone != nil) || !bytes.Equal(zone, c.zone) || !bytes.Equal(has[ctaID], c.ID):
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
	output := recorded(f)
	for i, name := range names {
		f.Add(uint8(i), output[name])
		var interrupted, unfinished []byte
		EachMessage(output[name], func(h Header, body []byte) {
			if h.Type != unix.NLMSG_DONE {
				unfinished = append(unfinished, datagram(h, body)...)
			}
			h.flags |= unix.NLM_F_DUMP_INTR
			interrupted = append(interrupted, datagram(h, body)...)
		})
		f.Add(uint8(i), interrupted)
		f.Add(uint8(i), unfinished)
	}
	none := bytes.Clone(output["netns-id"]) // an id that says that there is none
	copy(none[len(none)-4:], []byte{0xff, 0xff, 0xff, 0xff})
	f.Add(uint8(slices.Index(names, "netns-id")), none)
	f.Fuzz(func(t *testing.T, which uint8, output []byte) {
		if len(output) > 32<<10 {
			t.Skip("more than the kernel says at once")
		}
		name := names[int(which)%len(names)]
		ours, theirs := pair(t, unix.SOCK_SEQPACKET)
		k := &Socket{fd: ours, buf: make([]byte, 64<<10)}
		const most = 11 // questions: ten tries of one, and another
		for q := range uint32(most) {
			if _, err := unix.Write(theirs, renumbered(output, q)); err != nil {
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
		EachMessage(output, func(h Header, body []byte) {
			if h.seq != 1 {
				return
			}
			code := []byte{0, 0, 0, 0}
			copy(code, body)
			end := h.Type == unix.NLMSG_DONE || h.Type == unix.NLMSG_ERROR
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
func renumbered(output []byte, later uint32) []byte {
	var out []byte
	EachMessage(output, func(h Header, body []byte) {
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
