package netdb_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/ipamd/ipamd/netdb"
	. "github.com/ipamd/ipamd/netdb/netdbtest"
)

// A commit's cost is the pages that it writes into the log: one for each B-tree that
// it changes, and a share of what splits. Every verb keeps to its bound, in a pool
// that fills up and in one that gives back what it was given.
func TestPagesPerCommit(t *testing.T) {
	const leases = 200 // below what folds the log
	b := OpenAt(t, t.TempDir()+"/book.db", Options())
	p := Pool(t, b, "default", "10.8.64.0/20")
	reserve := func(i int) *netdb.Lease {
		c, err := b.Pick(p.UID, Policy)
		if err != nil {
			t.Fatal(err)
		}
		defer b.Drop(c)
		ls, err := b.Reserve(ctx, netdb.Who{Actor: netdb.ByAllocator, Peer: "uid=0 pid=4242 (runner)", Reason: "allocated"}, netdb.Reservation{
			Candidate: c, Sandbox: fmt.Sprintf("sandbox-%08d", i), UID: fmt.Sprintf("sandbox-%08d-incarnation", i), Interface: "eth0", Attempt: 1,
			BindWithin: 10 * time.Minute, Labels: map[string]string{"runtime": "runc", "tenant": "a-tenant-of-this-runner"}})
		if err != nil {
			t.Fatal(err)
		}
		return ls[0]
	}
	held := make([]*netdb.Lease, leases)
	bind := func(i int) (*netdb.Lease, error) {
		return b.Bind(ctx, client, held[i].ID, 0, netdb.Binding{
			Containers: []netdb.Container{{Namespace: "default", ID: fmt.Sprintf("container-%08d", i)}}, Netns: fmt.Sprintf("/run/netns/sandbox-%08d", i),
			HostInterface: fmt.Sprintf("veth%08d", i), MAC: fmt.Sprintf("02:00:00:00:%02x:%02x", i/256, i%256)})
	}
	for _, verb := range []struct {
		name string
		most float64 // pages a commit, on average
		do   func(i int) (*netdb.Lease, error)
	}{
		{"allocate", 4, func(i int) (*netdb.Lease, error) { return reserve(i), nil }},
		{"bind", 3, bind},
		{"bind again", 0, bind},
		{"release", 3, func(i int) (*netdb.Lease, error) { return b.Release(ctx, client, held[i].ID, "", 0) }},
		{"confirm", 4, func(i int) (*netdb.Lease, error) {
			return b.Confirm(ctx, watchdog, held[i].ID, held[i].Rev, nil)
		}},
		{"allocate once more", 4, func(i int) (*netdb.Lease, error) { return reserve(leases + i), nil }},
		{"expire", 6, func(i int) (*netdb.Lease, error) {
			return b.Expire(ctx, watchdog, held[i].ID, held[i].Rev, nil)
		}},
	} {
		written := 0
		for i := range leases {
			before, err := netdb.LogPages(ctx, b)
			if err != nil {
				t.Fatal(err)
			}
			if held[i], err = verb.do(i); err != nil {
				t.Fatal(verb.name, err)
			}
			after, err := netdb.LogPages(ctx, b)
			if err != nil {
				t.Fatal(err)
			}
			if after < before { // it has begun anew
				before = 0
			}
			written += after - before
		}
		mean := float64(written) / leases
		t.Logf("%s: %.2f pages a commit", verb.name, mean)
		if mean > verb.most {
			t.Errorf("%s writes %.2f pages a commit, more than %v", verb.name, mean, verb.most)
		}
	}
}
