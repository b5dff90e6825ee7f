package main

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/client"
	"github.com/ipamd/ipamd/internal/build"
	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/netdb/netdbtest"
	"github.com/ipamd/ipamd/server/servertest"
)

// goesOn runs a verb that does not end by itself. next reads its lines up to one with
// all the words; end is Ctrl-C, and returns the exit code.
func goesOn(t *testing.T, socket, command string) (next func(says ...string) string, end func() int) {
	t.Helper()
	out, in := io.Pipe()
	ctx, cancel := context.WithCancel(t.Context())
	code := make(chan int, 1)
	c := newCtl(streams{out: in, err: io.Discard, columns: func() int { return 0 }, getenv: func(string) string { return "" }, now: func() time.Time { return noon }},
		func(string) *client.Client { return &client.Client{Socket: socket} }, build.Info{})
	c.timeout, c.first = 10*time.Minute, 10*time.Minute
	go func() { code <- c.run(ctx, strings.Fields(command)); in.Close() }()
	end = sync.OnceValue(func() int { cancel(); out.Close(); return <-code })
	t.Cleanup(func() { end() })
	lines := bufio.NewScanner(out)
	return func(says ...string) string {
		t.Helper()
		for lines.Scan() {
			found := true
			for _, word := range says {
				found = found && strings.Contains(lines.Text(), word)
			}
			if found {
				return lines.Text()
			}
		}
		t.Fatalf("ipamctl %s: no line says %q", command, says)
		return ""
	}, end
}

// What an operator sees of the stream, and of a gateway's table, against a real server.
func TestWatchAndRoutes(t *testing.T) {
	t.Parallel()
	rig := servertest.Start(t)
	w := &world{socket: rig.Socket}
	l := netdbtest.Reserve(t, rig.Book, "web-1")
	people, _ := goesOn(t, rig.Socket, "watch --since 0")
	people("free → reserved", "web-1", l.Addr.String())
	pools, _ := goesOn(t, rig.Socket, "watch --since 0 --kinds pool")
	pools("pool default  pool_created: 10.8.64.0/24, active, generation 1")
	programs, _ := goesOn(t, rig.Socket, "watch --since 0 --kinds pool,lease -o json")
	var e api.Event
	if err := json.Unmarshal([]byte(programs(`"kind":"lease"`)), &e); err != nil || e.Change.LeaseID != l.ID || e.Revision != l.Rev {
		t.Errorf("%+v, %v", e, err)
	}
	ids, end := goesOn(t, rig.Socket, "watch --since 0 -q")
	if got := ids(); got != l.ID {
		t.Errorf("%q is no lease id", got)
	}
	if code := end(); code != exitOK {
		t.Errorf("Ctrl-C ends it with %d", code)
	}
	table, end := goesOn(t, rig.Socket, "routes --watch")
	table("web-1", l.Addr.String(), "reserved", "no")
	objects, _ := goesOn(t, rig.Socket, "routes --watch -o json")
	objects(`"change":"set"`, `"state":"reserved"`)
	who := netdbtest.Who(ipam.ByClient, "test")
	if _, err := rig.Book.Bind(t.Context(), who, l.ID, 0, ipam.Binding{HostInterface: "vethweb"}); err != nil {
		t.Fatal(err)
	}
	table("+ web-1 " + l.Addr.String() + " bound")
	objects(`"change":"set"`, `"served":true`)
	people("reserved → bound")
	s := &screen{}
	var shown struct{ Routes []routeLine }
	if code := w.ctl(t, s, "routes", "-o", "json"); code != exitOK || json.Unmarshal(s.out.Bytes(), &shown) != nil || len(shown.Routes) != 1 || !shown.Routes[0].Served {
		t.Errorf("%d, %s", code, s.out.String())
	}
	if _, err := rig.Book.Release(t.Context(), who, l.ID, "", 0); err != nil {
		t.Fatal(err)
	}
	rig.Confirm(t, l.ID)
	table("- web-1 " + l.Addr.String())
	objects(`"change":"gone"`)
	people("releasing → cooling")
	if code := end(); code != exitOK {
		t.Errorf("Ctrl-C ends it with %d", code)
	}
	for _, line := range []string{"watch -o yaml", "watch --kinds cat", "routes --watch -o yaml"} {
		if code := w.ctl(t, &screen{}, strings.Fields(line)...); code != exitUsage {
			t.Errorf("ipamctl %s: exit %d", line, code)
		}
	}
	if code := (&world{socket: t.TempDir() + "/none"}).ctl(t, &screen{}, "routes"); code != exitNotRunning {
		t.Errorf("without a daemon: exit %d", code)
	}
}
