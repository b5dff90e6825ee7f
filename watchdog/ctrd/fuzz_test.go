package ctrd

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/containerd/containerd/v2/core/containers"
)

// FuzzLabels: a container's labels become claims or a reason, whatever stands
// in them. A label that nobody can read is never silence, and no two claims of
// one container are of one address.
func FuzzLabels(f *testing.F) {
	for _, seed := range [][4]string{
		{"web-1", "10.8.64.2", "", "10.8.64.3/24"},
		{"web-1", "10.8.64.2/24", "2", "::ffff:10.8.64.2"},
		{"", "10.8.64.999", "01", ""},
		{"a--b", "fe80::1%eth0", "-id", "fd00:8::7/64"},
		{"\xff", "0.0.0.0", "9999999999999999999999", "224.0.0.1"},
		{"x", " 10.8.64.2", "\x00", "10.8.64.2\n"},
	} {
		f.Add(seed[0], seed[1], seed[2], seed[3])
	}
	cfg := Config{OwnerLabel: "owner", AddressLabel: "ip", LeaseLabel: "lease", UIDLabel: "uid"}
	f.Fuzz(func(t *testing.T, owner, first, suffix, second string) {
		labels := map[string]string{"owner": owner, "ip": first, "ip" + suffix: second, "lease": second, "uid": owner}
		seen, unread := cfg.sightings("ns", containers.Container{ID: "c", Labels: labels}, task{state: "running"})
		if len(seen) == 0 {
			t.Fatal("the container is not even there")
		}
		claimed := make(map[netip.Addr]bool)
		for _, s := range seen {
			if s.Sandbox != owner || s.UID != owner || s.LeaseID != second || s.Container != "c" || s.Namespace != "ns" || s.Task != "running" {
				t.Fatalf("%+v is not what the labels say", s)
			}
			if !s.Addr.IsValid() {
				if len(seen) > 1 {
					t.Fatalf("a claim of nothing among %+v", seen)
				}
				continue
			}
			if a := s.Addr; claimed[a] || a.Is4In6() || a.Zone() != "" || a.IsUnspecified() || a.IsMulticast() {
				t.Fatalf("%v is claimed twice, or is no address of a sandbox: %+v", a, seen)
			}
			claimed[s.Addr] = true
		}
		holding := 0
		for name := range labels {
			if number, ok := strings.CutPrefix(name, "ip"); ok && strings.Trim(number, "0123456789") == "" {
				holding++
			}
		}
		if len(claimed)+len(unread) > holding || holding > 0 && len(claimed)+len(unread) == 0 {
			t.Fatalf("%d labels hold addresses: %d claims, unread %q", holding, len(claimed), unread)
		}
	})
}
