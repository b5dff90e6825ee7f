package main

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/client"
	"github.com/ipamd/ipamd/config"
	"github.com/ipamd/ipamd/internal/ctrdtest"
	"github.com/ipamd/ipamd/internal/nstest"
	"github.com/ipamd/ipamd/internal/realtest"
	"github.com/ipamd/ipamd/nft"
	"github.com/ipamd/ipamd/wake/catch"
)

// resumes has the daemon resume by containerd, and be patient.
func resumes(c *config.Config) {
	c.Wake.Resumer, c.Wake.Wait = "containerd", config.Duration(wait)
}

// site is a box whose container serves HTTP on port 8080.
func (w *world) site(d *ctrdtest.Daemon, name string) *box {
	w.t.Helper()
	b := &box{name: name, held: w.allocate(name).Leases[0]}
	b.port = w.ns.Port("rt0", fmt.Sprintf("%s/%d", b.held.Address, b.held.PrefixLen))
	b.port.NS.Exec("ip", "route", "add", "default", "via", addr(1))
	named := labels(name, b.held.Address)
	named["ipamd.dev/lease-id"] = b.held.ID
	d.Run(w.t, ctrdtest.Spec{ID: name, Labels: named, Netns: b.port.NS.Path(), Args: []string{"/bin/busybox", "httpd", "-f", "-p", "8080", "-h", "/proc/1"}})
	realtest.Eventually(w.t, wait, "the container to be seen", func() bool { return seenBy(w, b.held.Address, "runtime") })
	if _, err := w.client.Bind(ctx, b.held.ID, api.BindRequest{Containers: []api.Container{{Namespace: "default", ID: name}},
		Netns: b.port.NS.Path(), HostInterface: b.port.HostName, MAC: b.port.MAC.String()}); err != nil {
		w.t.Fatal(err)
	}
	realtest.Eventually(w.t, wait, "its server", func() bool { _, err := fetch(w.ns, b.held.Address); return err == nil })
	return b
}

// fetch asks a site once, by a plain connect without a retry, and returns the first line of
// its answer.
func fetch(from *nstest.NS, to string) (line string, err error) {
	from.Do(func() {
		var c net.Conn
		if c, err = net.DialTimeout("tcp", net.JoinHostPort(to, "8080"), wait); err != nil {
			return
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(wait))
		if _, err = fmt.Fprintf(c, "GET /comm HTTP/1.0\r\n\r\n"); err == nil {
			line, err = bufio.NewReader(c).ReadString('\n')
		}
	})
	if err == nil && !strings.HasPrefix(line, "HTTP/1") {
		err = errors.New("answered " + line)
	}
	return line, err
}

// outside is a namespace that the host routes to, and not a port of the bridge.
func (w *world) outside() *nstest.NS {
	w.t.Helper()
	out := nstest.New(w.t)
	w.ns.Exec("ip", "link", "add", "uplink", "type", "veth", "peer", "name", "eth0", "netns", out.Name())
	w.ns.AddAddr("uplink", "192.0.2.1/24")
	out.AddAddr("eth0", "192.0.2.2/24")
	w.ns.Up("uplink")
	out.Up("eth0")
	out.Exec("ip", "route", "add", "default", "via", "192.0.2.1")
	w.ns.Exec("sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward")
	return out
}

// doPause has ipamd freeze a sandbox, and traffic to port 8080 wake it.
func (w *world) doPause(b *box) {
	w.t.Helper()
	r, err := w.client.Pause(ctx, b.held.ID, api.PauseRequest{Mode: api.Freeze, Do: true, Wake: &api.WakePolicy{Ports: []string{"8080"}}})
	if err != nil || r.Lease.State != api.Paused {
		w.t.Fatalf("pause: %+v, %v", r, err)
	}
	// What is resumed before its pause was read shows nothing until the next whole reading.
	realtest.Eventually(w.t, wait, "its task to be seen paused", func() bool {
		return slices.ContainsFunc(w.program.board.About(netip.MustParseAddr(b.held.Address)).Seen, func(s census.Sighting) bool { return s.Task == "paused" })
	})
}

// tcpOf is what a capture of a sender shows of TCP: how many SYNs it sent, and RSTs it was sent.
func tcpOf(wire *nstest.Wire) (syns, resets int) {
	for {
		f, sent, ok := wire.Capture(0)
		if !ok {
			return syns, resets
		}
		if len(f) < 54 || binary.BigEndian.Uint16(f[12:]) != 0x0800 || f[23] != 6 {
			continue
		}
		flags := f[14+int(f[14]&15)*4+13]
		if sent && flags&0x12 == 0x02 {
			syns++
		}
		if !sent && flags&0x04 != 0 {
			resets++
		}
	}
}

// Z2, Z13: ipamd freezes real tasks. A plain connect, of the host, of a neighbour and of the world
// that the host routes, wakes them: its first SYN is all that it sends, nothing is refused, and it
// is answered.
func TestZ2Z13AFrozenTaskIsWoken(t *testing.T) {
	t.Parallel()
	ctrdtest.Each(t, func(t *testing.T, d *ctrdtest.Daemon) {
		w := newWorld(t, withContainerd(d), slow, resumes)
		b, neighbour, world := w.site(d, "a"), w.box(d, "b"), w.outside()
		for _, from := range []struct {
			who, source, link string
			ns                *nstest.NS
		}{{"the host", addr(1), "rt0", w.ns}, {"a neighbour", neighbour.held.Address, "eth0", neighbour.port.NS}, {"the world", "192.0.2.2", "eth0", world}} {
			w.doPause(b)
			if s := d.Status(t, "default", "a"); s != "paused" {
				t.Fatalf("its task is %s", s)
			}
			wire := from.ns.Wire(from.link)
			if _, err := fetch(from.ns, b.held.Address); err != nil {
				t.Fatalf("%s: %v", from.who, err)
			}
			w.becomes(b.held.Address, api.Bound)
			if s := d.Status(t, "default", "a"); s != "running" {
				t.Errorf("its task is %s", s)
			}
			if syns, resets := tcpOf(wire); syns != 1 || resets != 0 {
				t.Errorf("%s sent %d SYNs, and was sent %d RSTs", from.who, syns, resets)
			}
			l, err := w.client.Lease(ctx, b.held.ID)
			if err != nil {
				t.Fatal(err)
			}
			if f := l.Lease.Sleep.Flight; f.Result != "woken" || f.Cause.Source != from.source || f.Cause.Port != 8080 {
				t.Errorf("%s: %+v", from.who, f)
			}
		}
		reasons := w.reasons(b.held.Address)
		if want := "paused frozen wake_requested waking woken paused frozen wake_requested waking woken paused frozen wake_requested waking woken"; !strings.HasSuffix(reasons, want) {
			t.Errorf("the history: %s", reasons)
		}
	})
}

// reasons are those of an address's history, the first one first.
func (w *world) reasons(addr string) string {
	w.t.Helper()
	var out []string
	for _, c := range w.whois(addr).History {
		out = append([]string{c.Reason}, out...)
	}
	return strings.Join(out, " ")
}

// Z7: what no attempt can repair is refused at once, by its class: a task that ended, and one that is
// gone.
func TestZ7ATaskThatEndedIsRefusedAtOnce(t *testing.T) {
	t.Parallel()
	ctrdtest.Each(t, func(t *testing.T, d *ctrdtest.Daemon) {
		w := newWorld(t, withContainerd(d), slow, resumes)
		b := w.box(d, "a")
		w.doPause(b)
		d.Resume(t, "default", "a") // a frozen task cannot be stopped on 1.6
		w.becomes(b.held.Address, api.Bound)
		d.StopTask(t, "default", "a")
		if _, err := w.client.Pause(ctx, b.held.ID, api.PauseRequest{Mode: api.Freeze, Do: true}); !errors.Is(err, client.ErrStateNotAllowed) {
			t.Errorf("paused: %v", err)
		}
		if l, err := w.client.Lease(ctx, b.held.ID); err != nil || l.Lease.State != api.Bound {
			t.Errorf("after a pause in vain: %+v, %v", l, err)
		}
		if _, err := w.client.Pause(ctx, b.held.ID, api.PauseRequest{Mode: api.Freeze}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.client.Wake(ctx, b.held.ID, api.WakeRequest{Wait: api.Lasting(time.Minute)}); !errors.Is(err, client.ErrWakeRefused) {
			t.Errorf("woken: %v", err)
		}
	})
}

// Without a resumer that could, and where the policy asks for what it cannot do, a pause is refused
// with what is missing, and one without that works.
func TestAPauseThatNothingCarriesOut(t *testing.T) {
	t.Parallel()
	ctrdtest.One(t, func(t *testing.T, d *ctrdtest.Daemon) {
		w := newWorld(t, withContainerd(d), slow)
		b := w.box(d, "a")
		refused := func(what, field string, req api.PauseRequest) {
			t.Helper()
			if _, err := w.client.Pause(ctx, b.held.ID, req); err == nil || !strings.Contains(err.Error(), field) {
				t.Errorf("%s: %v", what, err)
			}
			if s := d.Status(t, "default", "a"); s != "running" || w.state(b.held.Address) != api.Bound {
				t.Errorf("%s: %s, %s", what, s, w.state(b.held.Address))
			}
		}
		refused("do with event", "wake.resumer is event", api.PauseRequest{Mode: api.Freeze, Do: true})
		w.stopDaemon()
		resumes(&w.cfg)
		w.start()
		refused("hibernate with containerd", "makes no task anew", api.PauseRequest{Mode: api.Hibernate, Wake: &api.WakePolicy{}})
		if _, err := w.client.Pause(ctx, b.held.ID, api.PauseRequest{Mode: api.Hibernate}); err != nil {
			t.Error(err)
		}
	})
}

// A command that is not there, and one that is no program, keep the daemon from starting, and the
// refusal names the field and the path.
func TestACommandThatCannotBeRun(t *testing.T) {
	t.Parallel()
	w := prepare(t, quick)
	w.ns.Bridge("rt0", "10.8.64.1/24")
	plain := filepath.Join(t.TempDir(), "resume")
	must(t, os.WriteFile(plain, nil, 0o600))
	for path, why := range map[string]string{"/nonexistent/resume": "no such file", plain: "permission denied"} {
		w.cfg.Wake.Resumer, w.cfg.Wake.Command = "exec", []string{path}
		p := w.newProgram()
		err := p.open(ctx)
		if err == nil {
			_ = p.close()
			t.Fatalf("it started with the command %s", path)
		}
		wants(t, "the refusal", err.Error(), "wake.command: ", path, why)
	}
	w.cfg.Wake.Resumer, w.cfg.Wake.Command = "event", nil
	w.start()
}

// ruleless waits until no rule watches for traffic.
func (w *world) ruleless() {
	w.t.Helper()
	w.ns.Do(func() {
		conn, err := nft.Open()
		if err != nil {
			w.t.Fatal(err)
		}
		defer conn.Close()
		realtest.Eventually(w.t, wait, "no rule is left", func() bool {
			have, err := conn.Read(ctx, &nft.Table{Family: nft.Netdev, Name: catch.TableName})
			return err == nil && have == nil
		})
	})
}

// Z16: what another resumes, by containerd's own tools, is bound by its event, and no rule
// stays. Z1: what is frozen stays so, through passes, and restarts of the daemon and of containerd,
// and is woken then.
func TestZ1Z16AsleepAndResumedByOthers(t *testing.T) {
	t.Parallel()
	ctrdtest.Each(t, func(t *testing.T, d *ctrdtest.Daemon) {
		w := newWorld(t, withContainerd(d), hasty, resumes)
		b := w.site(d, "a")
		w.doPause(b)
		d.Resume(t, "default", "a")
		w.becomes(b.held.Address, api.Bound)
		w.ruleless()

		w.doPause(b)
		asleep := func(when string) {
			t.Helper()
			for range 3 {
				if r := w.pass(); r.Absent != 0 || len(r.Actions) != 0 {
					t.Fatalf("%s: a pass: %+v", when, r)
				}
			}
			if s := w.state(b.held.Address); s != api.Paused {
				t.Fatalf("%s: it is %s", when, s)
			}
		}
		asleep("at first")
		w.stopDaemon()
		w.start()
		asleep("after a restart of the daemon")
		d.Restart()
		realtest.Eventually(t, wait, "containerd to be followed", func() bool { return w.pass().Seen > 0 && seenBy(w, b.held.Address, "runtime") })
		asleep("after a restart of containerd")
		if _, err := fetch(w.ns, b.held.Address); err != nil {
			t.Fatal(err)
		}
		w.becomes(b.held.Address, api.Bound)
		w.ruleless()
	})
}

// booted has the book of a world that is down be of before the machine booted.
func (w *world) booted() {
	w.t.Helper()
	const other = "00000000-0000-4000-8000-000000000001"
	w.edit(`UPDATE book SET boot_id = ?1; UPDATE leases SET created_boot_id = ?1, since_boot_id = ?1;
		UPDATE changes SET boot_id = ?1; UPDATE pools SET created_boot_id = ?1`, other)
}

// Z17: the machine boots while they sleep, and their containers are gone. What was frozen goes the
// confirmed way; what hibernates stays, and so does what was not said to be frozen, also behind a wake that failed.
func TestZ17ABootWhileTheySleep(t *testing.T) {
	t.Parallel()
	ctrdtest.One(t, func(t *testing.T, d *ctrdtest.Daemon) {
		w := newWorld(t, withContainerd(d), hasty, resumes)
		frozen, hibernated, output, before, woken := w.box(d, "frozen"), w.box(d, "hibernated"), w.box(d, "said"), w.box(d, "before"), w.box(d, "woken")
		if _, err := w.client.Pause(ctx, before.held.ID, api.PauseRequest{Mode: api.Freeze}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.client.Resume(ctx, before.held.ID, api.PauseRequest{}); err != nil { // that it was frozen once says nothing of now
			t.Fatal(err)
		}
		for b, mode := range map[*box]api.SleepMode{frozen: api.Freeze, hibernated: api.Hibernate, output: "", before: "", woken: ""} {
			if _, err := w.client.Pause(ctx, b.held.ID, api.PauseRequest{Mode: mode}); err != nil {
				t.Fatal(err)
			}
			d.Pause(t, "default", b.name)
		}
		w.stopDaemon()
		for _, b := range []*box{frozen, hibernated, output, before, woken} {
			d.Resume(t, "default", b.name)
			d.Delete(t, "default", b.name)
			b.port.Close()
		}
		w.start()
		w.pass()
		w.pass()
		for _, b := range []*box{frozen, hibernated, output, before, woken} {
			if s := w.state(b.held.Address); s != api.Paused {
				t.Fatalf("in the same boot %s is %s", b.name, s)
			}
		}
		if _, err := w.client.Wake(ctx, woken.held.ID, api.WakeRequest{Wait: api.Lasting(wait)}); err == nil {
			t.Fatal("it is woken without a task")
		}
		w.stopDaemon()
		w.booted()
		w.start()
		w.pass()
		w.pass()
		w.becomes(frozen.held.Address, api.Cooling)
		if got := ends(w, frozen); got != "reaped, removal_confirmed" {
			t.Errorf("the frozen one ended by: %s", got)
		}
		for _, b := range []*box{hibernated, output, before, woken} {
			if s := w.state(b.held.Address); s != api.Paused {
				t.Errorf("%s is %s", b.name, s)
			}
		}
	})
}

// hasMinutes reports whether there are minutes for what goes on for long, as in a soak.
func hasMinutes() bool { return os.Getenv("ROUNDS") != "" }

// rounds is how often Z18 goes round.
func rounds() int {
	if hasMinutes() {
		return 1000
	}
	return 20
}

// Z18: idle, paused by ipamd as the policy says, woken by traffic; and paused and woken again and
// again: no address is lost, no rule is left, and task and lease agree.
func TestZ18IdlePausedWoken(t *testing.T) {
	t.Parallel()
	ctrdtest.One(t, func(t *testing.T, d *ctrdtest.Daemon) {
		w := newWorld(t, withContainerd(d), slow, resumes, func(c *config.Config) { c.Idle.After = config.Duration(time.Second) })
		b := w.site(d, "a")
		policy := api.PauseRequest{Mode: api.Freeze, Do: true, Wake: &api.WakePolicy{Ports: []string{"8080"}, RepauseAfter: api.Lasting(time.Second)}}
		if _, err := w.client.Pause(ctx, b.held.ID, policy); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if _, err := fetch(w.ns, b.held.Address); err != nil {
				t.Fatal(err)
			}
			w.becomes(b.held.Address, api.Bound)
			l, err := w.client.Lease(ctx, b.held.ID)
			if err != nil || l.Lease.LastTraffic != nil && l.Lease.LastTraffic.Before(l.Lease.Created) {
				t.Errorf("last traffic: %+v, %v", l.Lease, err)
			}
			w.becomes(b.held.Address, api.Paused) // by itself
			realtest.Eventually(t, wait, "its task to stand still", func() bool {
				return d.Status(t, "default", "a") == "paused" && strings.HasSuffix(w.reasons(b.held.Address), "wake_requested waking woken idle_paused frozen")
			})
		}
		if l, err := w.client.Lease(ctx, b.held.ID); err != nil || l.Lease.LastTraffic == nil {
			t.Errorf("last traffic: %+v, %v", l, err)
		}
		policy.Wake.RepauseAfter = ""
		for range rounds() {
			if _, err := w.client.Pause(ctx, b.held.ID, policy); err != nil {
				t.Fatal(err)
			}
			if _, err := fetch(w.ns, b.held.Address); err != nil {
				t.Fatal(err)
			}
			w.becomes(b.held.Address, api.Bound)
		}
		if s := d.Status(t, "default", "a"); s != "running" {
			t.Errorf("its task is %s", s)
		}
		w.ruleless()
	})
}

// Z13: a sandbox hibernates, and is restored in another namespace, behind another port and with
// another MAC. Its lease and address stay, what came for it meanwhile is held back, not refused,
// and the client's own retransmit is answered; nothing of it is taken for a stranger.
func TestZ13RestoredElsewhere(t *testing.T) {
	t.Parallel()
	ctrdtest.One(t, func(t *testing.T, d *ctrdtest.Daemon) {
		w := newWorld(t, withContainerd(d), slow)
		b, neighbour := w.site(d, "a"), w.box(d, "b")
		for _, c := range []struct {
			what, link   string
			ns           *nstest.NS
			moved, acked bool
		}{
			{"a neighbour, restored elsewhere", "eth0", neighbour.port.NS, true, true},
			{"the host, restored in its place", "rt0", w.ns, false, false},
			{"the host, restored elsewhere", "rt0", w.ns, true, false},
			{"a neighbour, restored in its place", "eth0", neighbour.port.NS, false, true},
		} {
			if _, err := w.client.Pause(ctx, b.held.ID, api.PauseRequest{Mode: api.Hibernate, Wake: &api.WakePolicy{Ports: []string{"8080"}}}); err != nil {
				t.Fatal(err)
			}
			d.Delete(t, "default", "a")
			wire := c.ns.Wire(c.link)
			answered := make(chan error, 1)
			go func() { _, err := fetch(c.ns, b.held.Address); answered <- err }()
			var flight *api.Flight
			realtest.Eventually(t, wait, "the runtime to be asked", func() bool {
				l, err := w.client.Lease(ctx, b.held.ID)
				if err == nil && l.Lease.Sleep != nil && l.Lease.Sleep.Flight != nil && l.Lease.Sleep.Flight.Result == "" {
					flight = l.Lease.Sleep.Flight
				}
				return flight != nil
			})
			if before := b.port; c.moved {
				b.port.Close()
				b.port = w.ns.Port("rt0", fmt.Sprintf("%s/%d", b.held.Address, b.held.PrefixLen))
				if b.port.MAC.String() == before.MAC.String() || b.port.HostName == before.HostName {
					t.Fatal("it is the same port")
				}
			}
			named := labels("a", b.held.Address)
			named["ipamd.dev/lease-id"] = b.held.ID
			d.Run(t, ctrdtest.Spec{ID: "a", Labels: named, Netns: b.port.NS.Path(), Args: []string{"/bin/busybox", "httpd", "-f", "-p", "8080", "-h", "/proc/1"}})
			if _, err := w.client.Bind(ctx, b.held.ID, api.BindRequest{Containers: []api.Container{{Namespace: "default", ID: "a"}},
				Netns: b.port.NS.Path(), HostInterface: b.port.HostName, MAC: b.port.MAC.String()}); err != nil {
				t.Fatal(err)
			}
			if c.moved {
				b.port.NS.Exec("busybox", "arping", "-U", "-c", "1", "-I", "eth0", b.held.Address) // as a runtime announces it
			}
			if c.acked {
				if _, err := w.client.AckWake(ctx, b.held.ID, api.AckRequest{Flight: flight.ID, Outcome: "woken"}); err != nil && !errors.Is(err, client.ErrStateNotAllowed) {
					t.Fatal(err) // a pass that sees the task run may have been quicker
				}
			} // else it is reported by the new task alone, which none has seen gone before
			if err := <-answered; err != nil {
				t.Errorf("%s: %v", c.what, err)
			}
			// It connects by a SYN of its own that it sends again: none was refused.
			if syns, resets := tcpOf(wire); syns < 2 || resets != 0 {
				t.Errorf("%s: it sent %d SYNs, and was sent %d RSTs", c.what, syns, resets)
			}
			w.becomes(b.held.Address, api.Bound)
			l, err := w.client.Lease(ctx, b.held.ID)
			if err != nil || l.Lease.ID != b.held.ID || l.Lease.MAC != b.port.MAC.String() {
				t.Errorf("%s: after the restore: %+v, %v", c.what, l, err)
			}
			// What was seen between its port and its bind, where that took long, ends as a conflict.
			realtest.Eventually(t, wait, "no conflict", func() bool {
				w.pass()
				l, err := w.client.Lease(ctx, b.held.ID)
				return err == nil && len(l.Lease.Conflict) == 0
			})
			if r := w.pass(); r.Absent != 0 {
				t.Errorf("%s: a pass: %+v", c.what, r)
			}
		}
		w.ruleless()
	})
}

// Z9: a daemon that was killed between the tasks of a wake leaves one that runs and one that stands
// still. The next pass binds the sandbox once both run.
func TestZ9KilledInTheMidstOfAWake(t *testing.T) {
	t.Parallel()
	ctrdtest.One(t, func(t *testing.T, d *ctrdtest.Daemon) {
		w := newWorld(t, withContainerd(d), hasty, resumes)
		both := w.boxOf("a", func(b *box) {
			b.run(w, d)
			d.Run(t, ctrdtest.Spec{ID: "a-2", Netns: b.port.NS.Path()})
		})
		if _, err := w.client.Bind(ctx, both.held.ID, api.BindRequest{Containers: []api.Container{{Namespace: "default", ID: "a"}, {Namespace: "default", ID: "a-2"}}}); err != nil {
			t.Fatal(err)
		}
		w.doPause(both)
		if one, other := d.Status(t, "default", "a"), d.Status(t, "default", "a-2"); one != "paused" || other != "paused" {
			t.Fatalf("they are %s and %s", one, other)
		}
		w.stopDaemon()
		d.Resume(t, "default", "a")
		w.start()
		w.becomes(both.held.Address, api.Bound)
		if is := d.Status(t, "default", "a-2"); is != "running" {
			t.Errorf("it is bound, and its second task is %s", is)
		}
	})
}
