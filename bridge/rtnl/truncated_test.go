package rtnl

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ipamd/ipamd/internal/nstest"
)

// tooManySources make all that the kernel says of a link longer than mostMessage.
const tooManySources = mostMessage/12 + 1000

// The kernel's answer about a link, and the list that has it, are longer than the buffer. That
// is an error at once, and not a list that lacks the link; the socket answers the next question.
func TestTruncatedAnswers(t *testing.T) {
	t.Parallel()
	ns := nstest.New(t)
	ns.Bridge("rt0")
	long := ns.LongLink("rt0", "m0", tooManySources)
	dial := func() (k *Socket, err error) {
		ns.Do(func() { k, err = Dial(unix.NETLINK_ROUTE) })
		return k, err
	}
	k, err := dial()
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	k.Redial = dial
	for name, ask := range map[string]func() error{
		"one link":  func() error { _, err := k.Link(NoNetns, long); return err },
		"by name":   func() error { _, err := k.LinkByName("m0"); return err },
		"all links": func() error { return k.Links(NoNetns, func(*Link) error { return nil }) },
	} {
		began := time.Now()
		if err := ask(); !errors.Is(err, ErrTruncated) {
			t.Errorf("%s: %v", name, err)
		}
		if took := time.Since(began); took > ReplyTimeout*time.Second/2 {
			t.Errorf("%s: it took %v", name, took)
		}
		if l, err := k.LinkByName("rt0"); err != nil || l.Kind != "bridge" {
			t.Errorf("another link, after %s: %+v, %v", name, l, err)
		}
	}
}

// The kernel's length of a LINKINFO of more than 64 KiB is too small by 64 KiB, so the source
// MACs of a guest's macvlan are read as attributes of the link, and could say that it is none.
func TestALinkThatWrapsIsNotRead(t *testing.T) {
	t.Parallel()
	attribute := func(typ uint16, payload ...[]byte) []byte {
		all := bytes.Join(payload, nil)
		b := binary.NativeEndian.AppendUint16(nil, uint16(4+len(all)))
		return append(binary.NativeEndian.AppendUint16(b, typ), all...)
	}
	fixed, mac := ifinfo(7, 0, 0), attribute(unix.IFLA_ADDRESS, []byte{2, 0, 0, 0, 0, 7, 0, 0})
	kind := attribute(unix.IFLA_INFO_KIND, []byte("macvlan\x00"))
	for name, forged := range map[string][]byte{
		"behind the kind": attribute(unix.IFLA_LINKINFO, attribute(unix.IFLA_INFO_KIND, []byte("xx\x00\x00"))),
		"before the kind": nil, // which is read as an address
	} {
		first := kind
		if forged == nil {
			first, forged = nil, kind
		}
		rest := attribute(unix.IFLA_UNSPEC, make([]byte, 1<<16-4-len(forged)))
		body := slices.Concat(fixed, mac, attribute(unix.IFLA_LINKINFO, first, forged, rest))
		if l, err := ParseLink(body); !errors.Is(err, errTwice) || !errors.Is(err, ErrUnreadable) {
			t.Errorf("%s: read %+v, %v", name, l, err)
		}
	}
	own := attribute(unix.IFLA_LINK, []byte{9, 0, 0, 0})
	forged := attribute(unix.IFLA_LINK, []byte{1, 0, 0, 0})
	swallows := binary.NativeEndian.AppendUint16(binary.NativeEndian.AppendUint16(nil, uint16(4+len(own))), 999)
	rest := attribute(unix.IFLA_UNSPEC, make([]byte, 1<<16-4-len(forged)-len(swallows)))
	body := slices.Concat(fixed, mac, attribute(unix.IFLA_LINKINFO, kind, rest, forged, swallows), own)
	if l, err := ParseLink(body); !errors.Is(err, errLong) || !errors.Is(err, ErrUnreadable) {
		t.Errorf("instead of the kernel's parent: read %+v, %v", l, err)
	}
	if l, err := ParseLink(slices.Concat(fixed, mac, attribute(unix.IFLA_LINKINFO, kind))); err != nil || l.Kind != "macvlan" {
		t.Errorf("a short one: %+v, %v", l, err)
	}
}

// Of news that is longer than the buffer it is known of which link it is, and none is lost.
func TestTruncatedNews(t *testing.T) {
	t.Parallel()
	ns := nstest.New(t)
	ns.Bridge("rt0")
	long := ns.LongLink("rt0", "m0", tooManySources)
	var n *News
	var err error
	ns.Do(func() { n, err = Subscribe(Unassigned) })
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	ns.Exec("ip", "link", "set", "m0", "address", "02:00:00:00:00:07")
	ns.Exec("ip", "link", "delete", "m0")
	got := make(map[uint16]bool)
	_, err = n.Read(n.Links, MostAtOnce, func(nsid int, h Header, body []byte) {
		if nsid == NoNetns && len(body) >= unix.SizeofIfInfomsg && int(binary.NativeEndian.Uint32(body[4:])) == long {
			got[h.Type] = true
		}
	})
	if err != nil || !got[unix.RTM_NEWLINK] || !got[unix.RTM_DELLINK] {
		t.Errorf("received %v, %v", got, err)
	}
}

// A truncated answer to an earlier question does not end the one to this.
func TestTruncatedAnswerOfAnotherQuestionIsIgnored(t *testing.T) {
	t.Parallel()
	ours, theirs := pair(t, unix.SOCK_SEQPACKET)
	k := &Socket{fd: ours, buf: make([]byte, 64), seq: 1}
	for _, output := range [][]byte{
		datagram(Header{Type: unix.RTM_NEWLINK, seq: 1}, make([]byte, 100)),
		datagram(Header{Type: unix.NLMSG_ERROR, seq: 2}, make([]byte, 4)),
		datagram(Header{Type: unix.RTM_NEWLINK, seq: 3, flags: unix.NLM_F_MULTI}, make([]byte, 100)),
	} {
		if _, err := unix.Write(theirs, output); err != nil {
			t.Fatal(err)
		}
	}
	if err := k.change(unix.RTM_NEWLINK, 0, nil); err != nil || k.cut {
		t.Errorf("%v, given up is %v", err, k.cut)
	}
	if err := k.dump(unix.RTM_GETLINK, nil, nil); !errors.Is(err, ErrTruncated) || !k.cut {
		t.Errorf("%v, given up is %v", err, k.cut)
	}
}
