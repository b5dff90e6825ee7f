package main

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/containerd/containerd/v2/pkg/namespaces"
	"golang.org/x/sys/unix"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/internal/ctrdtest"
	"github.com/ipamd/ipamd/internal/nstest"
	"github.com/ipamd/ipamd/internal/realtest"
	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/wake/idle"
)

// waking is goal 19: how long a plain connect to a frozen task waits for its answer, beside
// containerd's own Resume of the same task and an answer after it.
func waking(r *run) func() []ratio {
	n := r.runner()
	check(n.allocate())
	l := *n.held
	n.held = nil
	port := n.ns.Port(bridgeName, l.Address+"/16")
	n.ctrd.Run(n, ctrdtest.Spec{ID: l.Sandbox, Netns: port.NS.Path(), Args: []string{"/bin/busybox", "httpd", "-f", "-p", "8080", "-h", "/proc/1"},
		Labels: map[string]string{"runtime.computer/entity-id": l.Sandbox, "runtime.computer/ip": l.Address, "ipamd.dev/lease-id": l.ID}})
	must(n.client.Bind(n.ctx, l.ID, api.BindRequest{Containers: []api.Container{{Namespace: "default", ID: l.Sandbox}},
		Netns: port.NS.Path(), HostInterface: port.HostName, MAC: port.MAC.String()}))
	ask := func() error { return n.fetch(l.Address) }
	realtest.Eventually(n, patience, "the sandbox answers", func() bool { return ask() == nil })
	ctx := namespaces.WithNamespace(n.ctx, namespaces.Default)
	task := must(must(n.ctrd.Client().LoadContainer(ctx, l.Sandbox)).Task(ctx, nil))
	pause := func() {
		reply := must(n.client.Pause(n.ctx, l.ID, api.PauseRequest{Mode: api.Freeze, Do: true, Wake: &api.WakePolicy{Ports: []string{"8080"}}}))
		if reply.Lease.State != api.Paused {
			n.Fatalf("it is %s", reply.Lease.State)
		}
	}
	settled := func() {
		realtest.Eventually(n, patience, "the lease is bound", func() bool { return must(n.client.Lease(n.ctx, l.ID)).Lease.State == api.Bound })
	}
	var woken, resumed sample
	return func() []ratio {
		for range 3 * turn {
			pause()
			check(woken.time(ask))
			settled()
			check(task.Pause(ctx))
			check(resumed.time(func() error {
				if err := task.Resume(ctx); err != nil {
					return err
				}
				return ask()
			}))
			settled()
		}
		return []ratio{took(woken.p50()-resumed.p50(), 2*time.Millisecond), took(woken.p99(), resumed.p99()), took(woken.p50(), resumed.p50())}
	}
}

// hibernated is goal 19 of a sandbox whose task is gone: a plain connect, while which the runtime
// makes the task anew. Its SYN is held back, so that the client's kernel sends it again after a
// second (RFC 6298), and not later: what is restored by then answers that one.
func hibernated(r *run) func() []ratio {
	ctrd := ctrdtest.Start(r, ctrdtest.V2)
	n := &runner{r.start(setup{runtime: ctrd.Address, resumer: "event"}).caller(), ctrd}
	check(n.allocate())
	l := *n.held
	n.held = nil
	port := n.ns.Port(bridgeName, l.Address+"/16")
	where := api.BindRequest{Containers: []api.Container{{Namespace: "default", ID: l.Sandbox}},
		Netns: port.NS.Path(), HostInterface: port.HostName, MAC: port.MAC.String()}
	restore := func() {
		ctrd.Run(n, ctrdtest.Spec{ID: l.Sandbox, Netns: port.NS.Path(), Args: []string{"/bin/busybox", "httpd", "-f", "-p", "8080", "-h", "/proc/1"},
			Labels: map[string]string{"runtime.computer/entity-id": l.Sandbox, "runtime.computer/ip": l.Address, "ipamd.dev/lease-id": l.ID}})
		must(n.client.Bind(n.ctx, l.ID, where))
	}
	ask := func() error { return n.fetch(l.Address) }
	restore()
	realtest.Eventually(n, patience, "the sandbox answers", func() bool { return ask() == nil })
	return func() []ratio {
		var all sample
		for range turn / 2 {
			must(n.client.Pause(n.ctx, l.ID, api.PauseRequest{Mode: api.Hibernate, Wake: &api.WakePolicy{Ports: []string{"8080"}}}))
			ctrd.Delete(n, "default", l.Sandbox)
			answered := make(chan error, 1)
			go func() { answered <- all.time(ask) }()
			realtest.Eventually(n, patience, "the runtime is asked", func() bool {
				s := must(n.client.Lease(n.ctx, l.ID)).Lease.Sleep
				return s != nil && s.Flight != nil && s.Flight.Result == ""
			})
			restore()
			check(<-answered)
			realtest.Eventually(n, patience, "the lease is bound", func() bool { return must(n.client.Lease(n.ctx, l.ID)).Lease.State == api.Bound })
		}
		return []ratio{took(all.p50(), time.Second)}
	}
}

// fetch asks a sandbox over HTTP once, from the daemon's namespace.
func (d *daemon) fetch(addr string) error {
	var c net.Conn
	if err := d.inside(func() (err error) {
		c, err = net.DialTimeout("tcp", net.JoinHostPort(addr, "8080"), patience)
		return err
	}); err != nil {
		return err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(patience))
	if _, err := fmt.Fprintf(c, "GET /comm HTTP/1.0\r\n\r\n"); err != nil {
		return err
	}
	line, err := bufio.NewReader(c).ReadString('\n')
	if err == nil && !strings.HasPrefix(line, "HTTP/1") {
		err = fmt.Errorf("it answered %q", line)
	}
	return err
}

// floodOfWakes is goal 19's second half: what a flood of packets to a sleeper that no runtime
// wakes costs the daemon, at the rate that this machine sends.
func floodOfWakes(r *run) func() []ratio {
	d := r.start(setup{})
	c := d.caller()
	check(c.allocate())
	port := d.ns.Port(bridgeName, c.held.Address+"/16")
	must(d.client.Bind(d.ctx, c.held.ID, api.BindRequest{Netns: port.NS.Path(), HostInterface: port.HostName, MAC: port.MAC.String()}))
	must(d.client.Pause(d.ctx, c.held.ID, api.PauseRequest{Mode: api.Freeze, Wake: &api.WakePolicy{Protocols: []string{"udp"}}}))
	from := d.ns.Port(bridgeName, "10.8.250.1/16")
	const lasts = 2 * time.Second
	return func() []ratio {
		var sent int
		busy := onProcessor(d.pid(), func() { from.NS.Do(func() { sent = flooded(c.held.Address, lasts) }) })
		return []ratio{took(busy, lasts/20), rates(float64(sent)/lasts.Seconds(), 200_000)}
	}
}

// flooded sends datagrams for so long, and counts them.
func flooded(addr string, lasts time.Duration) (sent int) {
	fd := must(unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0))
	defer unix.Close(fd)
	to := &unix.SockaddrInet4{Port: 53, Addr: netip.MustParseAddr(addr).As4()}
	for began := time.Now(); time.Since(began) < lasts; {
		for range 64 {
			if unix.Sendto(fd, []byte("?"), 0, to) == nil { // else it is refused where none listens
				sent++
			}
		}
	}
	return sent
}

// idleTimes is the rest of goal 19: one reading of when each of a thousand sandboxes had
// traffic last.
func idleTimes(r *run) func() []ratio {
	const sandboxes = 1000
	c := r.book(nil)
	ns := nstest.New(r)
	ns.Bridge(bridgeName, "10.8.0.1/16")
	var seen []string
	for i := range sandboxes {
		check(c.allocate())
		l := must(c.Bind(r.ctx, ipam.Who{Actor: ipam.ByClient, Reason: "bench"}, c.held.ID, 0, ipam.Binding{HostInterface: "veth" + strconv.Itoa(i)}))
		seen = append(seen, l.Addr.String())
	}
	inside := func(f func() error) (err error) { ns.Do(func() { err = f() }); return err }
	w := must(idle.Open(r.ctx, idle.Config{Book: c, Pauser: noPauser{}, Inside: inside, After: time.Minute, Log: slog.New(slog.DiscardHandler)}))
	r.Cleanup(func() { check(w.Close()) })
	ns.Exec("nft", "add", "element", "bridge", idle.TableName, "seen4", "{ "+strings.Join(seen, ", ")+" }")
	read := call{do: w.Read}
	byTurns(turn, read) // warm
	var once sync.Once
	return func() []ratio {
		t := byTurns(2*turn, read)
		once.Do(func() {
			if _, known := w.LastTraffic(c.held); !known {
				r.Fatalf("nothing is known of %s", c.held.Addr)
			}
		})
		return []ratio{took(t[0].do.p50(), 10*time.Millisecond)}
	}
}

// noPauser pauses nothing.
type noPauser struct{}

func (noPauser) Repause(context.Context, *ipam.Lease, func() error) error { return nil }
