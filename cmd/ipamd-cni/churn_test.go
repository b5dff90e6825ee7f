package main

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/containerd/errdefs"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/vishvananda/netlink"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/client"
	"github.com/ipamd/ipamd/internal/ctrdtest"
	"github.com/ipamd/ipamd/internal/nstest"
	"github.com/ipamd/ipamd/internal/realtest"
)

var (
	churnRounds = flag.Int("churn", 100, "containers that TestN5RandomKills adds and deletes")
	churnFor    = flag.Duration("churn.for", 0, "how long it goes on, however many that are; 0: as -churn says")
)

// N5: ADD and DEL of a container each, by callers of ipamd as a main plugin, of ipamd below
// the reference bridge, and beside a runtime that binds labelled containers of a containerd, while
// plugins, the daemon and containerd are killed at random. No address is two containers' at
// any moment, and who was answered has its one lease and can reach the gateway. At the end
// book, bridge, namespaces and rules are as they were before.
func TestN5RandomKills(t *testing.T) {
	realtest.Long(t)
	t.Parallel()
	realtest.Need(t, "iptables-save", "nft", "busybox")
	ctrdtest.One(t, func(t *testing.T, d *ctrdtest.Daemon) {
		seed := rand.Uint64()
		t.Logf("seed %d", seed)
		w := prepare(t, "10.8.64.0/22", "[enforce]\nmode = 'enforce'\n")
		w.edit("kind = 'none'", "kind = 'containerd'\naddress = '"+d.Address+"'")
		w.start()
		before := w.traces()
		c := &churn{w: w, runtime: d, began: time.Now(), boxes: make(map[string]bool), held: make(map[string]string)}
		rounds := int64(*churnRounds)
		if *churnFor == 0 {
			c.left.Store(rounds)
		}
		var all sync.WaitGroup
		for i := range 6 {
			dice := rand.New(rand.NewPCG(seed, uint64(i)))
			all.Go(func() { c.calls(i, dice) })
		}
		done := make(chan struct{})
		native := make(chan struct{})
		go func() {
			defer close(native)
			c.sandboxes(rand.New(rand.NewPCG(seed, 100)), done)
		}()
		go func() { all.Wait(); close(done) }()
		c.kills(rand.New(rand.NewPCG(seed, 101)), done, native)
		t.Cleanup(func() {
			if !t.Failed() {
				return
			}
			w.tellLeft()
		})
		realtest.Eventually(t, wait, "no lease is left after all are deleted", func() bool { return len(w.leases()) == 0 })
		for end := time.Now().Add(wait); w.traces() != before && time.Now().Before(end); {
			time.Sleep(100 * time.Millisecond)
		}
		if after := w.traces(); after != before {
			t.Errorf("before:\n%s\nafter:\n%s", before, after)
		}
		for box := range c.boxes {
			if _, err := os.Stat(box); err == nil {
				t.Errorf("the namespace %s is left", box)
			}
		}
		r, err := w.client.CheckBook(t.Context())
		if err != nil || !r.Whole {
			t.Errorf("the book: %+v, %v", r, err)
		}
		if *churnFor > 0 {
			rounds = c.left.Load()
		}
		t.Logf("%d containers, and %d of containerd; killed: %d plugins, the daemon %d times, containerd %d times",
			rounds, c.native, c.plugins.Load(), c.daemons, c.runtimes)
	})
}

// A churn is what its callers share.
type churn struct {
	w       *world
	runtime *ctrdtest.Daemon
	began   time.Time
	left    atomic.Int64 // containers to come; with -churn.for those that came
	plugins atomic.Int64 // killed

	daemons, runtimes, native int

	mu    sync.Mutex
	boxes map[string]bool   // every namespace that was made
	held  map[string]string // the container that has an address, from its ADD's answer to its DEL
}

// next says whether there is one more container to come.
func (c *churn) next() bool {
	if *churnFor > 0 {
		more := time.Since(c.began) < *churnFor
		if more {
			c.left.Add(1)
		}
		return more
	}
	return c.left.Add(-1) >= 0
}

// calls adds and deletes containers until enough are.
func (c *churn) calls(i int, dice *rand.Rand) {
	for c.next() {
		// Of each three callers two plug in by ipamd, and one by the bridge.
		a := churned{churn: c, dice: dice, id: fmt.Sprintf("c%d-%x", i, dice.Uint64()), bridge: i%3 == 2}
		if err := a.round(); err != nil {
			c.w.t.Errorf("container %s: %v", a.id, err)
			return
		}
	}
}

// churned is one container of a churn.
type churned struct {
	*churn
	dice   *rand.Rand
	id     string
	box    *nstest.NS
	bridge bool
}

func (a *churned) round() error {
	a.box = nstest.New(a.w.t)
	defer a.box.Delete()
	a.mu.Lock()
	a.boxes[a.box.Path()] = true
	a.mu.Unlock()
	for a.dice.IntN(4) == 0 {
		a.kill("ADD")
		// What is left of a bridge's ADD keeps another from being made, and a runtime
		// that asks again says DEL first.
		if a.bridge || a.dice.IntN(2) == 0 {
			if err := a.deleted(a.box.Path()); err != nil {
				return err
			}
		}
	}
	address, err := a.added()
	if err != nil {
		return err
	}
	if err := a.hold(address, a.id); err != nil {
		return err
	}
	if err := a.proved(address); err != nil {
		return err
	}
	time.Sleep(time.Duration(a.dice.IntN(5)) * time.Millisecond)
	a.let(address)

	netns := a.box.Path()
	switch a.dice.IntN(32) {
	case 0: // its DEL is never said
		return nil
	case 1, 2, 3: // it comes once the namespace has gone
		a.box.Delete()
		netns = ""
	}
	for a.dice.IntN(4) == 0 {
		a.kill("DEL")
	}
	if err := a.deleted(netns); err != nil {
		return err
	}
	if a.dice.IntN(4) == 0 {
		return a.deleted("") // that of a CRI, which says it twice
	}
	return nil
}

// added says ADD until it is answered, as a runtime does that is answered to try again.
func (a *churned) added() (string, error) {
	for end := time.Now().Add(wait); ; {
		out, err := a.say("ADD", a.box.Path())
		if err == nil {
			return addressOf(out)
		}
		if code(err) != types.ErrTryAgainLater || time.Now().After(end) {
			return "", err
		}
		if err := a.deleted(a.box.Path()); err != nil {
			return "", err
		}
	}
}

func (a *churned) deleted(netns string) error {
	if _, err := a.say("DEL", netns); err != nil {
		return fmt.Errorf("DEL: %w", err)
	}
	return nil
}

// proved holds what was answered against the namespace, the book and the wire.
func (a *churned) proved(address string) error {
	eth0, err := a.box.Netlink().LinkByName("eth0")
	if err != nil {
		return err
	}
	in, err := a.box.Netlink().AddrList(eth0, syscall.AF_INET)
	if err != nil || len(in) != 1 || !in[0].IP.Equal(net.ParseIP(address)) {
		return fmt.Errorf("%s was answered, and the namespace has %v, %w", address, in, err)
	}
	var list *api.LeaseList
	if err := patiently(context.Background(), wait, func(ctx context.Context) (err error) {
		list, err = a.w.client.Leases(ctx, client.LeaseFilter{Sandbox: a.id})
		return err
	}); err != nil {
		return err
	}
	var open []api.Lease
	for _, l := range list.Leases {
		if isOpen(l) {
			open = append(open, l)
		}
	}
	if len(open) != 1 || open[0].Address != address || open[0].State != api.Bound || open[0].Netns != a.box.Path() || open[0].MAC != eth0.Attrs().HardwareAddr.String() {
		return fmt.Errorf("%s was answered, with the MAC %s, and the book has %+v", address, eth0.Attrs().HardwareAddr, open)
	}
	if a.dice.IntN(8) != 0 {
		return nil
	}
	out, err := exec.Command("nsenter", "--net="+a.box.Path(), "busybox", "ping", "-c1", "-W5", "10.8.64.1").CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s does not reach the gateway: %w: %s", address, err, out)
	}
	return nil
}

func (a *churned) program() (path, conf string) {
	own := fmt.Sprintf(`"type": "ipamd", "socket": %q, "wait": "60s"`, a.w.socket)
	if a.bridge {
		return filepath.Join(a.w.bin, "bridge"), fmt.Sprintf(`{"cniVersion": "1.1.0", "name": "b", "type": "bridge", "bridge": "rt0", "ipam": {%s}}`, own)
	}
	return filepath.Join(a.w.bin, "ipamd"), fmt.Sprintf(`{"cniVersion": "1.1.0", "name": "n", %s}`, own)
}

func (a *churned) command(verb, netns string) (cmd *exec.Cmd, conf string) {
	path, conf := a.program()
	return a.w.command([]string{"CNI_COMMAND=" + verb, "CNI_CONTAINERID=" + a.id, "CNI_NETNS=" + netns, "CNI_IFNAME=eth0"}, path), conf
}

func (a *churned) say(verb, netns string) (string, error) {
	cmd, conf := a.command(verb, netns)
	return run(cmd, conf)
}

// kill begins a call of the plugin and kills it. What a bridge has started below it goes on.
func (a *churned) kill(verb string) {
	cmd, conf := a.command(verb, a.box.Path())
	cmd.Stdin = strings.NewReader(conf)
	if cmd.Start() != nil {
		return
	}
	time.Sleep(time.Duration(a.dice.IntN(30)) * time.Millisecond)
	if cmd.Process.Kill() == nil {
		a.plugins.Add(1)
	}
	_ = cmd.Wait()
}

// hold notes that an address is a container's, which has it alone.
func (c *churn) hold(address, who string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if other, is := c.held[address]; is {
		return fmt.Errorf("%s is %s's, too", address, other)
	}
	c.held[address] = who
	return nil
}

func (c *churn) let(address string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.held, address)
}

// sandboxes makes containers in containerd until done: a runtime that calls the daemon itself.
func (c *churn) sandboxes(dice *rand.Rand, done <-chan struct{}) {
	for {
		select {
		case <-done:
			return
		default:
		}
		if err := c.sandbox(dice, fmt.Sprintf("s%d", c.native)); err != nil {
			c.w.t.Errorf("sandbox s%d: %v", c.native, err)
			return
		}
		c.native++
	}
}

func (c *churn) sandbox(dice *rand.Rand, name string) error {
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	var l api.Lease
	err := patiently(ctx, wait, func(ctx context.Context) error {
		r, err := c.w.client.Allocate(ctx, api.AllocateRequest{Sandbox: name})
		if err == nil {
			l = r.Leases[0]
		}
		return err
	})
	if err != nil {
		return err
	}
	if err := c.hold(l.Address, name); err != nil {
		return err
	}
	labels := map[string]string{"runtime.computer/entity-id": name, "runtime.computer/ip": l.Address, "ipamd.dev/lease-id": l.ID}
	if err := c.ask(ctx, func(ctx context.Context, ctr *containerd.Client) error {
		_, err := ctr.NewContainer(ctx, name, containerd.WithContainerLabels(labels), containerd.WithSpec(new(oci.Spec)))
		if errdefs.IsAlreadyExists(err) { // made by one that containerd was killed in
			return nil
		}
		return err
	}); err != nil {
		return err
	}
	if err := patiently(ctx, wait, func(ctx context.Context) error {
		_, err := c.w.client.Bind(ctx, l.ID, api.BindRequest{Containers: []api.Container{{Namespace: "default", ID: name}}})
		return err
	}); err != nil {
		return err
	}
	c.let(l.Address)
	if err := c.ask(ctx, func(ctx context.Context, ctr *containerd.Client) error {
		return c.runtime.TryDelete(ctx, ctr, "", name)
	}); err != nil || dice.IntN(2) == 0 {
		return err // its release is not reported
	}
	return patiently(ctx, wait, func(ctx context.Context) error { return release(ctx, daemon{c.w.socket}, []api.Lease{l}) })
}

// ask calls containerd until it answers: it is killed now and then, and a call that it was
// killed in may hang for longer than it is gone.
func (c *churn) ask(ctx context.Context, call func(context.Context, *containerd.Client) error) error {
	for {
		err := func() error {
			ctx, cancel := context.WithTimeout(namespaces.WithNamespace(ctx, namespaces.Default), 5*time.Second)
			defer cancel()
			ctr, err := containerd.New(c.runtime.Address)
			if err != nil {
				return err
			}
			defer ctr.Close()
			return call(ctx, ctr)
		}()
		if err == nil || ctx.Err() != nil {
			return err
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// kills ends the daemon and containerd as crashes would, until both have ended.
func (c *churn) kills(dice *rand.Rand, ended ...<-chan struct{}) {
	for _, end := range ended {
		for running := true; running; {
			select {
			case <-end:
				running = false
				continue
			case <-time.After(time.Duration(300+dice.IntN(1500)) * time.Millisecond):
			}
			if dice.IntN(3) == 0 {
				c.runtimes++
				c.runtime.Kill9()
				time.Sleep(time.Duration(dice.IntN(300)) * time.Millisecond)
				c.runtime.Restart()
				continue
			}
			c.daemons++
			_ = c.w.daemon.Process.Signal(syscall.SIGKILL)
			_ = c.w.daemon.Wait()
			c.w.start()
		}
	}
}

// tellLeft says of leases that are left what they wait for.
func (w *world) tellLeft() {
	ctx := context.Background() // the test's has ended
	list, err := w.client.Leases(ctx, client.LeaseFilter{})
	if err != nil {
		w.t.Logf("leases: %v", err)
		return
	}
	n := 0
	for _, l := range list.Leases {
		if l.State == api.Cooling {
			continue
		}
		r, err := w.client.Lease(ctx, l.ID)
		if n++; err == nil && n <= 3 {
			w.t.Logf("left is %+v, which waits for %v", r.Lease, r.Blockers)
		}
	}
	r, err := w.client.Reconcile(ctx, api.ReconcileRequest{Preview: true})
	w.t.Logf("%d leases are left; a pass: %+v, %v", n, r, err)
}

// traces is what a container could leave behind: ports of the bridge and other links, rules
// of the daemon's table and how they differ from the book, other tables, and iptables.
func (w *world) traces() string {
	w.t.Helper()
	links, err := w.ns.Netlink().LinkList()
	if err != nil {
		w.t.Fatal(err)
	}
	var out []string
	for _, l := range links {
		out = append(out, l.Attrs().Name)
	}
	r, err := w.client.Rules(w.t.Context(), "")
	if err != nil {
		w.t.Fatal(err)
	}
	// The rules keep the bridge's own addresses for it; of its link it has one with its first port, and
	// one more with another MAC.
	bridge, err := w.ns.Netlink().LinkByName("rt0")
	if err != nil {
		w.t.Fatal(err)
	}
	own, err := w.ns.Netlink().AddrList(bridge, netlink.FAMILY_ALL)
	if err != nil {
		w.t.Fatal(err)
	}
	out = append(out, fmt.Sprintf("held %v, %d elements beside the bridge's own, ports %v, differences %v", r.Held, r.Elements-len(own), r.Ports, r.Differences))
	for _, args := range [][]string{{"nft", "list", "tables"}, {"iptables-save"}} {
		message, err := run(w.command(nil, args...), "")
		if err != nil {
			w.t.Fatal(err)
		}
		for line := range strings.Lines(message) {
			if !strings.HasPrefix(line, "#") { // the time
				out = append(out, strings.TrimSpace(line))
			}
		}
	}
	return strings.Join(out, "\n")
}
