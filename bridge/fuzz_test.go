package bridge

import (
	"bytes"
	"net"
	"net/netip"
	"testing"
)

// FuzzFrames: an answer off the wire names an address and the MAC behind it,
// or is none. Whoever is on the bridge can send any bytes, and a packet socket
// delivers them cut short, too.
func FuzzFrames(f *testing.F) {
	mac := net.HardwareAddr{2, 0, 0, 0, 0, 1}
	v4, v6 := netip.MustParseAddr("10.8.64.2"), netip.MustParseAddr("fd00:8::2")
	reply := arpQuestion(mac, v4)
	reply[21] = arpReply
	copy(reply[28:], v4.AsSlice())
	advert := ndpQuestion(mac, v6)
	advert[etherLength+ipv6Length] = neighbourAdvertisement
	advert[etherLength+ipv6Length+4] = solicited
	for _, frame := range [][]byte{reply, advert, reply[:arpLength-1], advert[:77], advert[:78], nil} {
		f.Add(frame)
	}
	f.Fuzz(func(t *testing.T, frame []byte) {
		given := bytes.Clone(frame)
		for _, p := range []protocol{arp(), ndp()} {
			addr, from, ok := p.answer(frame)
			if ok && (!addr.IsValid() || addr.Zone() != "" || len(from) != 6) {
				t.Fatalf("%s: %v from %v", p.name, addr, from)
			}
			if !ok && (addr.IsValid() || from != nil) {
				t.Fatalf("%s: no answer, and yet %v from %v", p.name, addr, from)
			}
			for i := range from { // what is kept must not change with the next frame
				from[i] ^= 0xff
			}
			if !bytes.Equal(given, frame) {
				t.Fatalf("%s keeps a part of the reader's buffer", p.name)
			}
		}
	})
}
