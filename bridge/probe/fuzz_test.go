package probe

import (
	"bytes"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

var guest4, guest6 = netip.MustParseAddr("10.8.0.7"), netip.MustParseAddr("fd00:8::7")

// FuzzFrames: any guest on the bridge can send any bytes, cut short, too. Each
// frame goes to a socket with the kernel's filter on it and is read from there
// by the prober, as from the bridge; the socket is no packet socket, so that
// all frames are to our own MAC for it. Of ARP it begins with the recorded frames
// (TestKeptARP). It holds:
//   - a frame counts as an answer if, and only if, it is one: nothing else is
//     evidence, and no answer is taken for silence;
//   - it counts for the address that it is about, which was asked for, and for
//     no other one, and only if it is to our own MAC;
//   - what it says is kept apart from the reader's buffer.
func FuzzFrames(f *testing.F) {
	mac := net.HardwareAddr{2, 0, 0, 0, 0, 1}
	advert := ndpQuestion(mac, guest6)
	advert[etherLength+ipv6Length] = neighbourAdvertisement
	advert[etherLength+ipv6Length+4] = solicited
	option := bytes.Clone(advert)
	option[etherLength+ipv6Length+24] = 2 // target link-layer address
	unasked := bytes.Clone(advert)
	unasked[etherLength+ipv6Length+4] = 0
	routed := bytes.Clone(advert)
	routed[etherLength+7] = 64
	for _, frame := range [][]byte{
		advert, option, unasked, routed, advert[:77], advert[:78], nil,
		ndpQuestion(mac, guest6), append(bytes.Clone(advert), make([]byte, snapLength)...),
	} {
		f.Add(frame)
	}
	p := &Prober{latest: make(map[netip.Addr]Reply)}
	send := make(map[*wire]int)
	for at, protocol := range map[**wire]protocol{&p.arp: arp(), &p.ndp: ndp()} {
		ours, theirs := packets(f, unix.SOCK_DGRAM)
		if err := attach(ours, protocol.filter); err != nil {
			f.Fatal(err)
		}
		*at = &wire{protocol, ours}
		send[*at] = theirs
	}
	f.Fuzz(func(t *testing.T, frame []byte) {
		if len(frame) > 1<<16 {
			t.Skip("more than a link carries")
		}
		p.questions.note(guest4)
		p.questions.note(guest6)
		given := bytes.Clone(frame)
		var due []netip.Addr
		for _, w := range []*wire{p.arp, p.ndp} {
			if _, err := unix.Write(send[w], frame); err != nil {
				t.Fatal(err)
			}
			if n, want := waiting(t, w.fd), passes(t, w.filter, unix.PACKET_HOST, frame); n != min(want, len(frame)) {
				t.Fatalf("%s: the kernel's filter lets %d bytes in, and the same program %d", w.name, n, want)
			}
			for kind := uint32(unix.PACKET_BROADCAST); kind <= unix.PACKET_OUTGOING; kind++ {
				if passes(t, w.filter, kind, frame) != 0 {
					t.Fatalf("%s: a frame of packet type %d, which is not to us, comes in", w.name, kind)
				}
			}
		}
		for _, a := range []netip.Addr{saysARP(frame), saysNDP(frame)} {
			if a == guest4 || a == guest6 {
				due = append(due, a)
			}
		}
		var got []netip.Addr
		p.Read(func(a netip.Addr, s Reply) {
			if !bytes.Equal(s.From[:], frame[6:12]) {
				t.Fatalf("%v is at %s, as %s says", a, s.Says, s.From)
			}
			got = append(got, a)
		})
		if !slices.Equal(got, due) {
			t.Fatalf("%x answers for %v, and counts for %v", frame, due, got)
		}
		for _, w := range []*wire{p.arp, p.ndp} {
			_, mac, _ := w.answer(frame)
			for i := range mac {
				mac[i] ^= 0xff
			}
		}
		if !bytes.Equal(given, frame) {
			t.Fatal("a MAC is kept as a part of the reader's buffer")
		}
	})
}

// The recorded ARP frames answer for this address, where they are to our own MAC; ""
// for none: one of other types or lengths of addresses has its addresses elsewhere. Were the files not what their
// names say, FuzzFrames would begin with bytes that mean nothing.
func TestKeptARP(t *testing.T) {
	const folder = "testdata/fuzz/FuzzFrames"
	recorded := map[string]string{
		"arp-reply":                          "10.8.0.7",
		"arp-reply-padded":                   "10.8.0.7",
		"arp-reply-longer-than-is-kept":      "10.8.0.7",
		"arp-reply-short":                    "",
		"arp-reply-cut-before-its-operation": "",
		"arp-reply-empty":                    "",
		"arp-reply-for-nobody-asked":         "10.8.0.8",
		"arp-reply-for-address-zero":         "0.0.0.0",
		"arp-says-another-mac":               "10.8.0.7",
		"arp-target-of-somebody-else":        "10.8.0.7",
		"arp-announcement-request":           "",
		"arp-announcement-reply":             "10.8.0.7",
		"arp-request":                        "",
		"arp-probe":                          "",
		"arp-operation-0":                    "",
		"arp-operation-rarp-reply":           "",
		"arp-operation-bytes-swapped":        "",
		"arp-hardware-type-token-ring":       "",
		"arp-hardware-length-lies":           "",
		"arp-hardware-length-0":              "",
		"arp-hardware-length-8":              "",
		"arp-protocol-type-ipv6":             "",
		"arp-protocol-length-16":             "",
		"arp-vlan-tagged":                    "",
		"arp-vlan-tagged-twice":              "",
	}
	files, err := filepath.Glob(folder + "/arp-*")
	if err != nil || len(files) != len(recorded) {
		t.Errorf("%d frames are recorded, and %d named: %v", len(files), len(recorded), err)
	}
	w := arp()
	for name, want := range recorded {
		frame := keptFrame(t, filepath.Join(folder, name))
		got := ""
		if passes(t, w.filter, unix.PACKET_HOST, frame) != 0 {
			if addr, _, ok := w.answer(frame); ok {
				got = addr.String()
			}
		}
		if got != want {
			t.Errorf("%s answers for %q, want %q", name, got, want)
		}
	}
}

// keptFrame reads a file of the fuzzer's that has one frame in it.
func keptFrame(t *testing.T, file string) []byte {
	t.Helper()
	recorded, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	text, isFrame := strings.CutPrefix(string(recorded), "go test fuzz v1\n[]byte(")
	frame, err := strconv.Unquote(strings.TrimSuffix(text, ")\n"))
	if err != nil || !isFrame {
		t.Fatalf("%s: %q is no frame: %v", file, recorded, err)
	}
	return []byte(frame)
}

// waiting is how many bytes there are to read next; 0 when there is nothing.
func waiting(t *testing.T, fd int) int {
	t.Helper()
	n, _, err := unix.Recvfrom(fd, make([]byte, 2*snapLength), unix.MSG_PEEK)
	if err != nil && err != unix.EAGAIN {
		t.Fatal(err)
	}
	return max(n, 0)
}

// passes is how many bytes of a frame a filter lets in, if the kernel says of
// the frame that it is of that type: for us, for all, for another.
func passes(t *testing.T, filter []bpf.Instruction, kind uint32, frame []byte) int {
	t.Helper()
	program := slices.Clone(filter)
	if program[0] != (bpf.LoadExtension{Num: bpf.ExtType}) {
		t.Fatalf("the filter begins with %v, not with the packet type", program[0])
	}
	program[0] = bpf.LoadConstant{Dst: bpf.RegA, Val: kind}
	vm, err := bpf.NewVM(program)
	if err != nil {
		t.Fatal(err)
	}
	n, err := vm.Run(frame)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// saysARP is the address that an ARP reply is about (RFC 826); none if it is
// none.
func saysARP(f []byte) netip.Addr {
	if len(f) < 42 || !bytes.Equal(f[12:22], []byte{0x08, 0x06, 0, 1, 0x08, 0, 6, 4, 0, 2}) {
		return netip.Addr{}
	}
	return netip.AddrFrom4([4]byte(f[28:]))
}

// saysNDP is the address that a solicited neighbour advertisement is about
// (RFC 4861, sections 4.4 and 7.1.2); none if it is none.
func saysNDP(f []byte) netip.Addr {
	if len(f) < 78 || f[20] != 58 || f[21] != 255 || f[54] != 136 || f[58]&0x40 == 0 {
		return netip.Addr{}
	}
	return netip.AddrFrom16([16]byte(f[62:]))
}

// packets is a real socket between the code and the test, in the kernel's place.
// It never keeps anybody waiting: with nothing to read, reading is an error.
func packets(t testing.TB, kind int) (ours, theirs int) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, kind|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fds[0]); unix.Close(fds[1]) })
	return fds[0], fds[1]
}
