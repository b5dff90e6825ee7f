package main

import (
	"strings"
	"testing"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/internal/nstest"
	"github.com/ipamd/ipamd/internal/realtest"
)

// A bridge that is deleted and made again has no ports, and the sandboxes live on behind links
// that no witness watches. No lease of theirs is reaped for that, and no release confirmed, by
// whatever the bind named them: over restarts of the daemon too. With the sandboxes the
// leases end.
func TestWhatLivesBesideTheBridgeKeepsItsAddress(t *testing.T) {
	t.Parallel()
	w := newWorld(t, hasty)
	type box struct {
		lease api.Lease
		port  *nstest.Port
	}
	boxes := make(map[string]box)
	for name, where := range map[string]func(*nstest.Port) api.BindRequest{
		"by its MAC":       func(p *nstest.Port) api.BindRequest { return api.BindRequest{MAC: p.MAC.String()} },
		"by its namespace": func(p *nstest.Port) api.BindRequest { return api.BindRequest{Netns: p.NS.Path()} },
		"by its port":      func(p *nstest.Port) api.BindRequest { return api.BindRequest{HostInterface: p.HostName} },
		"by its port, released": func(p *nstest.Port) api.BindRequest {
			return api.BindRequest{HostInterface: p.HostName, MAC: p.MAC.String()}
		},
		"by its MAC, released":       func(p *nstest.Port) api.BindRequest { return api.BindRequest{MAC: p.MAC.String()} },
		"by its namespace, released": func(p *nstest.Port) api.BindRequest { return api.BindRequest{Netns: p.NS.Path()} },
	} {
		p := w.ns.Port("rt0")
		r, err := w.client.Bind(ctx, w.allocate(name).Leases[0].ID, where(p))
		if err != nil {
			t.Fatal(err)
		}
		p.AddAddr(r.Lease.Address + "/24")
		boxes[name] = box{r.Lease, p}
	}
	realtest.Eventually(t, wait, "each to be seen in its place", func() bool {
		w.pass()
		for _, b := range boxes {
			l, err := w.program.book.Lease(b.lease.ID)
			if err != nil || l.Plug.Unseen || l.Plug.Index == 0 && l.Plug.Behind == 0 {
				return false
			}
		}
		return true
	})
	flushed := boxes["by its MAC"] // its port is there, and shows no address
	flushed.port.DelAddr(flushed.lease.Address + "/24")
	for range 3 {
		w.pass()
	}
	if s := w.state(flushed.lease.Address); s != api.Bound {
		t.Errorf("a guest removed its address, its port is there, and it is %s", s)
	}
	flushed.port.AddAddr(flushed.lease.Address + "/24")
	w.ns.Exec("ip", "link", "del", "rt0")
	w.ns.Bridge("rt0", "10.8.64.1/24")
	realtest.Eventually(t, wait, "the bridge to be ready", func() bool {
		r := w.pass()
		return r.Complete
	})
	released := func(name string) bool { return strings.HasSuffix(name, "released") }
	for name, b := range boxes {
		if !released(name) {
			continue
		}
		r, err := w.client.Release(ctx, b.lease.ID, api.ReleaseRequest{Wait: "200ms"})
		if err != nil || r.Lease.State != api.Releasing || len(r.Blockers) == 0 || r.Blockers[0].Kind != "port" {
			t.Errorf("%s: it is %s, blocked by %+v, %v", name, r.Lease.State, r.Blockers, err)
		}
	}
	for range 2 {
		for range 3 {
			w.pass()
		}
		for name, b := range boxes {
			want := api.Bound
			if released(name) {
				want = api.Releasing
			}
			if s := w.state(b.lease.Address); s != want {
				t.Errorf("%s: %s is %s, and its sandbox lives with it", name, b.lease.Address, s)
			}
		}
		w.stopDaemon()
		w.start()
	}
	for _, b := range boxes {
		b.port.Close()
	}
	realtest.Eventually(t, wait, "the leases to end with their sandboxes", func() bool {
		w.pass()
		for _, b := range boxes {
			if w.state(b.lease.Address) != api.Cooling {
				return false
			}
		}
		return true
	})
}

// Both leases of a sandbox that has an address of each family know the port that they name, once it is
// there: a bind may come before it, and a boot brings another link of its name. Each took the other
// for another sandbox, which may have the port; and beside the bridge nothing led to either.
func TestBothFamiliesBesideTheBridgeKeepTheirAddresses(t *testing.T) {
	t.Parallel()
	for name, boots := range map[string]bool{"bound before its port": false, "after a boot": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := dual(t, hasty)
			p := w.ns.Port("rt0")
			named := "sb0" // the port gets this name when it is bound
			if boots {
				named = p.HostName
			}
			r, err := w.client.Allocate(ctx, api.AllocateRequest{Sandbox: "a", Family: api.Dual})
			if err != nil {
				t.Fatal(err)
			}
			for i, l := range r.Leases {
				if _, err := w.client.Bind(ctx, l.ID, api.BindRequest{HostInterface: named, MAC: p.MAC.String()}); err != nil {
					t.Fatal(err)
				}
				p.AddAddr(l.Address + []string{"/24", "/64"}[i])
			}
			if boots {
				w.stopDaemon()
				w.booted()
				w.edit(`UPDATE leases SET plug = json_set(plug, '$.boot', '00000000-0000-4000-8000-000000000001', '$.index', 999)`)
				w.start()
			} else {
				for range 3 {
					w.pass() // which finds the addresses, and no port of the name
				}
				w.ns.Exec("ip", "link", "set", p.HostName, "down")
				w.ns.Exec("ip", "link", "set", p.HostName, "name", named)
				w.ns.Exec("ip", "link", "set", named, "up")
			}
			index := w.linkIndex(named)
			realtest.Eventually(t, wait, "both to know their port", func() bool {
				w.pass()
				for _, l := range r.Leases {
					now, err := w.program.book.Lease(l.ID)
					if err != nil || now.Plug.Index != index || now.Plug.Unseen {
						return false
					}
				}
				return true
			})
			w.bridgeMadeAnew("10.8.64.1/24", "fd00:8:64::1/64")
			for _, l := range r.Leases {
				w.staysAs(l, api.Bound, "beside the bridge")
			}
		})
	}
}
