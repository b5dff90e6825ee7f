package icmp6_test

import (
	"net"
	"net/netip"
	"testing"

	"github.com/ipamd/ipamd/internal/icmp6"
)

// TestLinkLocal has the kernel's address of a MAC, and none for what is no MAC of Ethernet.
func TestLinkLocal(t *testing.T) {
	for mac, want := range map[string]netip.Addr{
		"02:42:0a:58:00:07":       netip.MustParseAddr("fe80::42:aff:fe58:7"),
		"00:00:00:00:00:01":       netip.MustParseAddr("fe80::200:ff:fe00:1"),
		"02:42:0a:58:00:07:00:01": {},
	} {
		m, err := net.ParseMAC(mac)
		if err != nil {
			t.Fatal(err)
		}
		if got := icmp6.LinkLocal(m); got != want {
			t.Errorf("LinkLocal(%s) = %v, want %v", mac, got, want)
		}
	}
	if got := icmp6.LinkLocal(nil); got.IsValid() {
		t.Errorf("without a MAC it is %v", got)
	}
}
