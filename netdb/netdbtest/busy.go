package netdbtest

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/ipamd/ipamd/ipam"
)

// Busy returns the bytes of a closed book of many pages, and its leases:
// some of each state.
func Busy(t testing.TB, dir string) ([]byte, []*ipam.Lease) {
	t.Helper()
	ctx := context.Background()
	path := filepath.Join(dir, "book.db")
	opts := Options()
	opts.RunnerUID, opts.MachineID, opts.QuarantineShare = "r1", "m1", 1
	b := OpenAt(t, path, opts)
	p := Pool(t, b, "default", "10.8.64.0/24")
	if err := b.NoteRuntime(ctx, Who(ipam.ByWatchdog, "met"), "c1", false); err != nil {
		t.Fatal(err)
	}
	for i := range 60 {
		l, err := TryReserve(b, p, fmt.Sprint("s", i), Policy)
		if err != nil {
			t.Fatal(err)
		}
		if i%3 == 0 {
			l = Cool(t, b, l)
		} else if i%5 == 0 {
			if l, err = b.Release(ctx, Who(ipam.ByClient, "released"), l.ID, "", 0); err != nil {
				t.Fatal(err)
			}
		}
		if i%15 == 0 {
			if _, err := b.Quarantine(ctx, Who(ipam.ByOperator, "set_aside"), l.Addr, json.RawMessage(`[{"witness":"netns"}]`)); err != nil {
				t.Fatal(err)
			}
		}
	}
	leases, _ := b.Leases()
	Close(t, b)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return whole, leases
}

// Missing returns the addresses of leases that were not found as they are.
func Missing(found, leases []*ipam.Lease) (out []string) {
	for _, l := range leases {
		if !slices.ContainsFunc(found, func(f *ipam.Lease) bool {
			return f.Addr == l.Addr && f.State == l.State && f.ID == l.ID && f.Sandbox == l.Sandbox && f.Rev == l.Rev
		}) {
			out = append(out, l.Addr.String())
		}
	}
	return out
}
