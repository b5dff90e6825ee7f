package ctrd

import (
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/containerd/containerd/v2/core/containers"
)

// FuzzLabels: a container's labels, here a line each, become claims or a
// reason, whatever stands in them. It holds:
//   - each label that holds addresses is a claim if its value is an address of
//     a sandbox, with or without a prefix length, and else a reason that names
//     it: a label that cannot be read is never silence;
//   - the claims are of as many addresses, and each says what the other labels
//     do and the later one of the record's dates;
//   - a container that claims nothing is there all the same;
//   - the same labels say the same again, in whatever order they come.
func FuzzLabels(f *testing.F) {
	for _, seed := range []string{
		"owner=web-1\nip=10.8.64.2\nip2=10.8.64.3/24\nlease=0193f2a5\nuid=u",
		"owner=web-1\nip=10.8.64.2/24\nip2=::ffff:10.8.64.2\nip10=fd00:8::7/64",
		"ip=10.8.64.999\nip01=\nip-id=10.8.64.2",
		"owner=a--b\nip=fe80::1%eth0\nip7=10.8.64.2/33\nip8=10.8.64.2/024",
		"owner=\xff\nip=0.0.0.0\nip9999999999999999999999=224.0.0.1",
		"ip= 10.8.64.2\nip\x00=10.8.64.2\nip3=10.8.64.3\r\nipv6=fd00:8::7",
		"owner=x",
		"",
	} {
		f.Add(seed, int64(1), int64(2), true)
		f.Add(seed, int64(2), int64(0), false)
	}
	f.Fuzz(func(t *testing.T, text string, created, updated int64, withUID bool) {
		labels := make(map[string]string)
		for line := range strings.SplitSeq(text, "\n") {
			name, value, _ := strings.Cut(line, "=")
			labels[name] = value
		}
		cfg := Config{OwnerLabel: "owner", AddressLabel: "ip", LeaseLabel: "lease"}
		uid := ""
		if withUID {
			cfg.UIDLabel, uid = "uid", labels["uid"]
		}
		c := containers.Container{ID: "c", Labels: labels, CreatedAt: time.Unix(0, created), UpdatedAt: time.Unix(0, updated)}
		seen, unread := cfg.sightings("ns", c, task{state: "running", note: "n"})
		c.Labels = maps.Clone(labels)
		if again, other := cfg.sightings("ns", c, task{state: "running", note: "n"}); !reflect.DeepEqual(seen, again) || !slices.Equal(unread, other) {
			t.Fatalf("%q says %v %q, and then %v %q", labels, seen, unread, again, other)
		}

		want := make(map[netip.Addr]bool)
		for name, value := range labels {
			number, ok := strings.CutPrefix(name, "ip")
			if !ok || strings.ContainsFunc(number, func(r rune) bool { return r < '0' || r > '9' }) {
				continue
			}
			if a, ok := held(value); ok {
				want[a] = true
			} else if !slices.ContainsFunc(unread, func(why string) bool {
				return strings.Contains(why, fmt.Sprintf("label %.100s = %.100q", name, value)) || strings.Contains(why, "are not read")
			}) {
				t.Fatalf("label %q = %q holds no address, and no reason says so: %q", name, value, unread)
			}
		}
		there := 0
		for _, s := range seen {
			if s.Addr.IsValid() {
				there++
				if !want[s.Addr] {
					t.Fatalf("%v is claimed, or claimed twice: %q", s.Addr, labels)
				}
				delete(want, s.Addr)
			}
			if s.Sandbox != labels["owner"] || s.UID != uid || s.LeaseID != labels["lease"] || s.Container != "c" ||
				s.Namespace != "ns" || s.Task != "running" || s.Note != "n" || s.At.UnixNano() != max(created, updated) {
				t.Fatalf("%+v is not what the labels say: %q", s, labels)
			}
		}
		if len(want) != 0 || len(seen) != max(there, 1) {
			t.Fatalf("%q claims %v, too, or is not even there: %+v", labels, want, seen)
		}
	})
}

// held is the address that a label holds.
func held(value string) (netip.Addr, bool) {
	a, err := netip.ParseAddr(value)
	if err != nil {
		bare, length, _ := strings.Cut(value, "/")
		bits, noNumber := strconv.ParseUint(length, 10, 8)
		if a, err = netip.ParseAddr(bare); err != nil || noNumber != nil || a.Zone() != "" ||
			int(bits) > a.BitLen() || strconv.FormatUint(bits, 10) != length {
			return netip.Addr{}, false
		}
	}
	a = a.Unmap().WithZone("")
	return a, !a.IsUnspecified() && !a.IsMulticast()
}
