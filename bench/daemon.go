package main

import (
	"cmp"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/client"
	"github.com/ipamd/ipamd/internal/nstest"
	"github.com/ipamd/ipamd/internal/realtest"
)

const (
	bridgeName = "rt0"
	largePool  = "10.8.0.0/16"
	portPrefix = "10.8.240.0/20" // of the ports' own addresses, which are not given
)

// configuration is the defaults but for where things are, and limits: all callers
// are one process.
const configuration = `
[book]
path = '%[1]s/book.db'
synchronous = 'full'
[socket]
path = '%[1]s/sock'
group = ''
max_rate = 0
max_connections = 4096
max_in_flight = 2048
[bridge]
name = '` + bridgeName + `'
manage = true
[[pool]]
name = 'default'
prefix = '%[2]s'
exclude = [%[3]s]
[runtime]
kind = '%[4]s'
address = '%[5]s'
[wake]
resumer = '%[6]s'
[log]
level = 'error'
format = 'text'
`

// A setup is what a daemon is started with.
type setup struct {
	pool    string // "": the large one
	ports   int    // of its bridge
	runtime string // containerd's socket; "": there is none
	resumer string // who wakes; "": containerd, where there is one
	book    string // the folder of a stopped daemon to go on with; "": a new one
}

// A daemon is the built program as users get it, in a network namespace of its own.
type daemon struct {
	*run
	client *client.Client
	ns     *nstest.NS
	folder string
	cmd    *exec.Cmd // nil: it does not run
	made   int       // callers
}

// start runs a daemon and waits until it gives addresses.
func (r *run) start(s setup) *daemon {
	d := &daemon{run: r, ns: nstest.New(r), folder: s.book}
	s.pool = cmp.Or(s.pool, largePool)
	kind, resumer, exclude, address := "none", "event", "", cmp.Or(s.runtime, "/nowhere")
	if s.runtime != "" {
		kind, resumer = "containerd", cmp.Or(s.resumer, "containerd")
	}
	if netip.MustParsePrefix(s.pool).Overlaps(netip.MustParsePrefix(portPrefix)) {
		exclude = "'" + portPrefix + "'"
	}
	if d.folder == "" {
		d.folder = must(os.MkdirTemp(r.dir, "book-"))
	}
	config := fmt.Appendf(nil, configuration, d.folder, s.pool, exclude, kind, address, resumer)
	check(os.WriteFile(filepath.Join(d.folder, "ipamd.toml"), config, 0o600))
	d.client = &client.Client{Socket: filepath.Join(d.folder, "sock")}
	r.Cleanup(d.stop)
	d.launch()
	addr := netip.MustParsePrefix(portPrefix).Addr()
	for range s.ports {
		addr = addr.Next()
		d.ns.Port(bridgeName, addr.String()+"/16")
	}
	d.ready()
	return d
}

// launch runs the program and waits until it gives addresses.
func (d *daemon) launch() {
	d.cmd = child(d.program, "run", "--config", filepath.Join(d.folder, "ipamd.toml"))
	d.cmd.Stderr = os.Stderr
	var err error
	d.ns.Do(func() { err = d.cmd.Start() })
	if err != nil {
		d.cmd = nil
	}
	check(err)
	d.ready()
}

func (d *daemon) pid() int { return d.cmd.Process.Pid }

func (d *daemon) ready() {
	realtest.Eventually(d, patience, "ipamd is ready", func() bool {
		_, err := d.client.Ready(d.ctx)
		check(d.ctx.Err())
		return err == nil
	})
}

// stop asks the program to end, and ends it when it does not. It may be called twice.
func (d *daemon) stop() {
	if d.cmd == nil {
		return
	}
	d.client.CloseIdleConnections()
	_ = d.cmd.Process.Signal(syscall.SIGTERM)
	last := time.AfterFunc(patience, func() { _ = d.cmd.Process.Kill() })
	defer last.Stop()
	ended := d.cmd.Wait()
	d.cmd = nil
	if ended != nil {
		d.Fatalf("ipamd: %v", ended)
	}
}

// A caller allocates and releases by turns. Its sandboxes have names of their own.
type caller struct {
	*daemon
	name  string
	calls int
	held  *api.Lease
}

func (d *daemon) caller() *caller {
	d.made++
	return &caller{daemon: d, name: fmt.Sprintf("%s-%d-", filepath.Base(d.ns.Name()), d.made)}
}

func (c *caller) allocate() error {
	c.calls++
	reply, err := c.client.Allocate(c.ctx, api.AllocateRequest{Sandbox: c.name + strconv.Itoa(c.calls)})
	if err == nil {
		c.held = &reply.Leases[0]
	}
	return err
}

// release ends a lease that was never bound: the cheapest of releases. On a machine
// that stands still the address may cool for that ipamd could not look at all in time.
func (c *caller) release() error {
	reply, err := c.client.Release(c.ctx, c.held.ID, api.ReleaseRequest{})
	c.held = nil
	if err == nil && reply.Lease.State != api.Free && reply.Lease.State != api.Cooling && reply.Lease.State != api.Releasing {
		err = fmt.Errorf("address %s is %s after its release: %v", reply.Lease.Address, reply.Lease.State, reply.Blockers)
	}
	return err
}

// either is the next call of the two.
func (c *caller) either() error {
	if c.held == nil {
		return c.allocate()
	}
	return c.release()
}

// call is an allocation, and its release.
func (c *caller) call() call { return call{c.allocate, c.release} }

// callers are n of a daemon's, each of which makes its next call.
func (d *daemon) callers(n int) []func() error {
	all := make([]func() error, n)
	for i := range all {
		all[i] = d.caller().either
	}
	return all
}

// fill takes leases with many callers, and keeps them.
func (d *daemon) fill(leases int) {
	var all errgroup.Group // waited for below
	for i := range d.bench.callers {
		c := d.caller()
		all.Go(func() (err error) {
			for n := i; n < leases && err == nil; n += d.bench.callers {
				err = c.allocate()
			}
			return err
		})
	}
	check(all.Wait())
}

// full is the folder of the book of a stopped daemon that has given most of a /16.
func (r *run) full() string {
	if r.filled == "" {
		d := r.start(setup{})
		d.fill(r.leases)
		d.stop()
		r.filled = d.folder
	}
	return r.filled
}
