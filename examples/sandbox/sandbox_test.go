package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/client"
	"github.com/ipamd/ipamd/internal/ctrdtest"
	"github.com/ipamd/ipamd/internal/realtest"
	"github.com/ipamd/ipamd/plumb"
)

func TestSandbox(t *testing.T) {
	realtest.Root(t)
	program := realtest.Program(t, "cmd/ipamd")
	ctrdtest.Each(t, func(t *testing.T, d *ctrdtest.Daemon) {
		w := newWorld(t, d, program)
		t.Run("lives and goes", func(t *testing.T) { livesAndGoes(t, w) })
		t.Run("takes back what failed", func(t *testing.T) { takesBack(t, w) })
		t.Run("one of two runs at once", func(t *testing.T) { oneOfTwo(t, w) })
		t.Run("keeps the address of what cannot be removed", func(t *testing.T) { keepsAddress(t, w) })
	})
}

// someName is a name that no other test has: network namespaces are named
// after it.
func someName(t *testing.T, of string) string {
	name := of + "-" + strings.ToLower(rand.Text()[:8])
	t.Cleanup(func() {
		if err := plumb.RemoveNetns(netnsPath(name)); err != nil {
			t.Error(err)
		}
	})
	return name
}

func livesAndGoes(t *testing.T, w *world) {
	a, b := someName(t, "a"), someName(t, "b")
	for _, name := range []string{a, b} {
		if err := w.run(t, w.Runtime, name); err != nil {
			t.Fatal(err)
		}
	}
	list, err := w.List(t.Context())
	if err != nil || len(list) != 2 {
		t.Fatalf("list: %v %v", list, err)
	}
	for i, name := range []string{a, b} {
		held, err := w.held(t.Context(), name)
		if err != nil || len(held) != 1 {
			t.Fatalf("leases of %s: %+v %v", name, held, err)
		}
		l, listed := held[0], list[i]
		if l.State != api.Bound || l.Netns != netnsPath(name) || !slices.Contains(w.ports(t), l.HostInterface) ||
			!slices.Equal(l.Containers, []api.Container{{Namespace: w.cfg.Namespace, ID: name}}) || l.MAC == "" {
			t.Errorf("lease of %s: %+v", name, l)
		}
		if listed != (Sandbox{Name: name, Address: l.Address, Lease: l.ID, Task: "running"}) {
			t.Errorf("list says %+v of %+v", listed, l)
		}
	}

	for _, c := range []struct {
		says string
		args []string
		code int
	}{
		{" 0% packet loss", reaches(list[1].Address), 0},
		{" 0% packet loss", reaches("10.8.64.1"), 0},
		{list[0].Address + "/24", []string{"ip", "address", "show", "eth0"}, 0},
		{"default via 10.8.64.1", []string{"ip", "route"}, 0},
		{"", []string{"sh", "-c", "exit 42"}, 42},
	} {
		var out, errs bytes.Buffer
		code, err := w.Exec(t.Context(), a, c.args, &out, &errs)
		if err != nil || code != c.code || !strings.Contains(out.String(), c.says) {
			t.Errorf("exec %q: %d %v, want %d and %q in:\n%s%s", c.args, code, err, c.code, c.says, &out, &errs)
		}
	}

	if err := w.run(t, w.Runtime, a); !errors.Is(err, errExists) || hint(err) == "" {
		t.Errorf("run it twice: %v", err)
	}
	if err := w.remove(t, t.Context(), a); err != nil {
		t.Fatal(err)
	}
	w.leaves(t, a)
	if ports := w.ports(t); len(ports) != 1 {
		t.Errorf("after rm there are ports %v", ports)
	}
	after, err := w.ipamd.Whois(t.Context(), list[0].Address)
	if err != nil || after.State != api.Releasing && after.State != api.Cooling {
		t.Errorf("the address after rm: %+v %v", after, err)
	}
	if err := w.remove(t, t.Context(), a); !errors.Is(err, errUnknown) || hint(err) == "" {
		t.Errorf("rm twice: %v", err)
	}
	if found := w.traces(t, b); len(found) != 3 {
		t.Errorf("the other sandbox has %v", found)
	}
	if err := w.remove(t, t.Context(), b); err != nil {
		t.Error(err)
	}
}

func takesBack(t *testing.T, w *world) {
	stopped := w.cfg
	stopped.Socket = w.dir + "/stopped"
	noBind := w.cfg
	noBind.Socket = w.cut(t, func(r *http.Request) bool { return strings.HasSuffix(r.URL.Path, "/bind") })
	noReply := w.cfg
	noReply.Socket = w.cut(t, func(r *http.Request) bool { return r.URL.Path == "/v1/leases" })

	some := errors.New("some error")
	for name, c := range map[string]struct {
		cfg  Config
		args []string
		want error
	}{
		"ipamd is not running":           {stopped, nil, client.ErrNotRunning},
		"the reply to allocate is lost":  {noReply, nil, some},
		"the program is not there":       {w.cfg, []string{"/no/such/program"}, some},
		"the reply to bind is lost":      {noBind, nil, some},
		"the network namespace is there": {w.cfg, nil, errHalf},
	} {
		t.Run(name, func(t *testing.T) {
			box := someName(t, "c")
			var keep []string
			if c.want == errHalf {
				if err := os.WriteFile(netnsPath(box), nil, 0o444); err != nil {
					t.Fatal(err)
				}
				keep = []string{"netns"} // it is another program's
			}
			err := w.run(t, w.open(t, c.cfg), box, c.args...)
			if err == nil || c.want != some && (!errors.Is(err, c.want) || hint(err) == "") {
				t.Errorf("got %v, want %v and a hint", err, c.want)
			}
			w.leaves(t, box, keep...)
			if ports := w.ports(t); len(ports) > 0 {
				t.Errorf("left behind: ports %v", ports)
			}
		})
	}
	if err := w.run(t, w.Runtime, "no/good"); err == nil {
		t.Error("a name that containerd refuses was accepted")
	}
	all, err := w.ipamd.Leases(t.Context(), client.LeaseFilter{})
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range all.Leases {
		if l.State != api.Releasing && l.State != api.Cooling {
			t.Errorf("lease left: %+v", l)
		}
	}
}

// oneOfTwo runs one name twice at once. One of the two fails, and takes back
// its own and nothing else.
func oneOfTwo(t *testing.T, w *world) {
	name := someName(t, "e")
	results := make(chan error, 2)
	for range 2 {
		go func() { results <- w.run(t, w.Runtime, name) }()
	}
	one, other := <-results, <-results
	if (one == nil) == (other == nil) {
		t.Fatalf("not one of two: %v; %v", one, other)
	}
	t.Logf("one of the two said: %v", errors.Join(one, other))
	w.leaves(t, name, "container", "netns", "lease bound")
	if err := w.remove(t, t.Context(), name); err != nil {
		t.Error(err)
	}
}

// keepsAddress is scenario W2 as seen by a runtime: what could not be removed
// was not released, and the next rm goes on.
func keepsAddress(t *testing.T, w *world) {
	name := someName(t, "d")
	if err := w.run(t, w.Runtime, name); err != nil {
		t.Fatal(err)
	}
	w.ctrd.Freeze()
	short, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	err := w.remove(t, short, name)
	cancel()
	w.ctrd.Thaw()
	if err == nil {
		t.Error("rm says that it is gone, which it cannot know")
	}
	if found := w.traces(t, name); !slices.Equal(found, []string{"container", "netns", "lease bound"}) {
		t.Errorf("after a failed rm there is %v", found)
	}
	if err := w.remove(t, t.Context(), name); err != nil {
		t.Error(err)
	}
	w.leaves(t, name)
}

// TestUndoStops: a step that cannot be undone keeps what is below it.
func TestUndoStops(t *testing.T) {
	var u undo
	var order []string
	broken := errors.New("broken")
	for _, step := range []struct {
		name string
		err  error
	}{{"release", nil}, {"unplug", broken}, {"delete", nil}} {
		u.add(func(ctx context.Context) error {
			if ctx.Err() != nil {
				t.Errorf("%s runs with the context that was cancelled", step.name)
			}
			order = append(order, step.name)
			return step.err
		})
	}
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	if err := u.run(cancelled); !errors.Is(err, broken) || !slices.Equal(order, []string{"delete", "unplug"}) {
		t.Errorf("undone: %v, %v", order, err)
	}
}

// reaches pings until a packet comes back: all namespaces of a machine share a table of
// neighbours, and while another test fills it no new one is found.
func reaches(addr string) []string {
	return []string{"sh", "-c", "for i in 1 2 3 4 5 6 7 8 9 10; do ping -q -c 1 -W 3 " + addr + " && exit; done; exit 1"}
}
