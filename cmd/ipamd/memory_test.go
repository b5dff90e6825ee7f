package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/client"
)

// highWater is the most memory that a process had resident since it was last
// asked, in bytes.
func highWater(t *testing.T, pid int) int {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, behind, _ := strings.Cut(string(status), "VmHWM:")
	kib, err := strconv.Atoi(strings.Fields(behind)[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0); err != nil {
		t.Fatal(err)
	}
	return kib << 10
}

// G12: peers that ask for all leases, which have labels as large as they can be, and
// read nothing cost the daemon a part of one listing, not several of them each;
// more labels than that are refused. A program that reads has its listing whole
// meanwhile, and in pages where the book is large.
func TestG12SlowListingsCostLittleMemory(t *testing.T) {
	const held = 120
	p, c := develop(t, t.TempDir())
	labels := map[string]string{"k": "\x01"}
	for i := range 4 {
		labels[fmt.Sprint(i)] = strings.Repeat("\x01", 4090) // six bytes each in JSON
	}
	labels["more"] = strings.Repeat("x", 100)
	_, err := c.Allocate(t.Context(), api.AllocateRequest{Sandbox: "s", Labels: labels})
	var refused *api.Error
	if !errors.As(err, &refused) || refused.Code != api.InvalidArgument || refused.Details["field"] != "labels" || !strings.Contains(err.Error(), "16384") {
		t.Errorf("labels above 16 KiB: %v", err)
	}
	delete(labels, "more")
	var all errgroup.Group
	all.SetLimit(8)
	for i := range held {
		all.Go(func() error {
			_, err := c.Allocate(t.Context(), api.AllocateRequest{Sandbox: fmt.Sprint("s", i), Labels: labels})
			return err
		})
	}
	if err := all.Wait(); err != nil {
		t.Fatal(err)
	}
	const listing = held * 6 * 16 << 10
	pid := p.cmd.Process.Pid
	highWater(t, pid)
	quiet := highWater(t, pid)
	for range 7 { // of the eight that one process may have under way
		slow, err := net.Dial("unix", c.Socket)
		if err != nil {
			t.Fatal(err)
		}
		defer slow.Close()
		fmt.Fprint(slow, "GET /v1/leases HTTP/1.1\r\nHost: ipamd\r\n\r\n")
		if _, err := slow.Read(make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
	}
	list, err := c.Leases(t.Context(), client.LeaseFilter{})
	if err != nil || len(list.Leases) != held {
		t.Errorf("%d leases, %v", len(list.Leases), err)
	}
	if grown := highWater(t, pid) - quiet; grown > listing {
		t.Errorf("it grew by %d MiB for seven slow readers and a quick one, where a listing has %d MiB", grown>>20, listing>>20)
	} else {
		t.Logf("it had %d MiB, and grew by %d MiB; a listing has %d MiB", quiet>>20, grown>>20, listing>>20)
	}
}
