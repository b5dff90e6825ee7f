package probe

import (
	"bytes"
	"net"
	"net/netip"
	"testing"
)

// Only a reply for IPv4 over Ethernet is an answer, whatever field of it differs, and
// however little of it there is.
func TestG5WhatIsAnARPAnswer(t *testing.T) {
	mac := net.HardwareAddr{2, 0, 0, 0, 0, 7}
	whole := arpQuestion(mac, netip.MustParseAddr("10.8.0.1"))
	copy(whole, []byte{2, 0x42, 0, 0, 0, 1})
	copy(whole[20:], []byte{0, arpReply})
	copy(whole[28:], []byte{10, 8, 0, 7})
	for name, tt := range map[string]struct {
		at   int
		put  []byte
		want bool
	}{
		"a reply":                             {0, nil, true},
		"of another Ethernet type":            {12, []byte{0x80, 0x35}, false},
		"of another hardware type":            {14, []byte{0, 6}, false},
		"of another protocol type":            {16, []byte{0x86, 0xdd}, false},
		"a hardware address of eight bytes":   {18, []byte{8}, false},
		"no hardware address":                 {18, []byte{0}, false},
		"a protocol address of sixteen bytes": {19, []byte{16}, false},
		"a request":                           {20, []byte{0, 1}, false},
		"a reply of inverse ARP":              {20, []byte{0, 9}, false},
		"an operation of two bytes":           {20, []byte{2, 2}, false},
		"another target":                      {32, []byte{2, 0, 0, 0, 0, 9, 10, 9, 9, 9}, true},
	} {
		frame := bytes.Clone(whole)
		copy(frame[tt.at:], tt.put)
		addr, says, ok := arpAnswer(frame)
		if ok != tt.want || ok && (addr != netip.MustParseAddr("10.8.0.7") || !bytes.Equal(says, mac)) {
			t.Errorf("%s: %v at %v, %v", name, addr, says, ok)
		}
	}
	for n := range arpLength {
		if addr, says, ok := arpAnswer(whole[:n]); ok {
			t.Errorf("of %d bytes: %v at %v", n, addr, says)
		}
	}
	if _, _, ok := arpAnswer(append(bytes.Clone(whole), make([]byte, snapLength)...)); !ok {
		t.Error("with padding behind it, it is none")
	}
}
