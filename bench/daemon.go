package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/vishvananda/netns"

	"github.com/ipamd/ipamd/client"
)

// A daemon is a running ipamd in a network namespace of its own, which goes
// away with it.
type daemon struct {
	client *client.Client
	cmd    *exec.Cmd
	ports  *ports
	calls  int    // names the sandboxes
	tally  *tally // of all callers
}

// configuration is the defaults but for where things are, a pool with room, and no
// rate, since all callers are one process. The ports' own addresses are outside what is given.
const configuration = `
[book]
path = '%[1]s/book.db'
synchronous = 'full'
[socket]
path = '%[1]s/sock'
group = ''
max_rate = 0
[bridge]
name = '` + bridgeName + `'
netns = ['%[1]s-netns']
manage = true
[[pool]]
name = 'default'
prefix = '%[4]s'
exclude = [%[5]s]
[runtime]
kind = '%[2]s'
address = '%[3]s'
[log]
level = 'error'
format = 'text'
`

const (
	bridgeName = "rt0"
	poolPrefix = "10.8.0.0/16"
	portPrefix = "10.8.255.0/24"
)

// startDaemon runs ipamd without a runtime, with an empty book below the run's
// directory, and waits until it gives addresses.
func (b *bench) startDaemon(ctx context.Context, name string) (*daemon, error) {
	return b.startDaemonWith(ctx, name, b.ports, "none", "/nowhere")
}

// startDaemonWith does so with so many ports and a runtime at an address.
func (b *bench) startDaemonWith(ctx context.Context, name string, ports int, kind, address string) (*daemon, error) {
	return b.startDaemonIn(ctx, name, netip.MustParsePrefix(poolPrefix), ports, kind, address)
}

// startDaemonIn does so with a pool of another prefix.
func (b *bench) startDaemonIn(ctx context.Context, name string, prefix netip.Prefix, ports int, kind, address string) (*daemon, error) {
	var exclude string
	if prefix.Overlaps(netip.MustParsePrefix(portPrefix)) {
		exclude = "'" + portPrefix + "'"
	}
	dir := filepath.Join(b.dir, name)
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	config := filepath.Join(dir, "ipamd.toml")
	if err := os.WriteFile(config, fmt.Appendf(nil, configuration, dir, kind, address, prefix, exclude), 0o600); err != nil {
		return nil, err
	}
	return b.resume(ctx, name, ports)
}

// resume runs ipamd on what there is below a name, with so many ports, and waits
// until it gives addresses.
func (b *bench) resume(ctx context.Context, name string, ports int) (*daemon, error) {
	d, err := b.launch(name)
	if err != nil {
		return nil, err
	}
	if err := d.settle(ctx, ports); err != nil {
		return nil, errors.Join(err, d.stop())
	}
	return d, nil
}

// settle makes so many ports of the daemon's bridge, and waits until it gives
// addresses.
func (d *daemon) settle(ctx context.Context, ports int) error {
	if err := d.ready(ctx); err != nil {
		return err
	}
	space, err := d.space()
	if err != nil {
		return err
	}
	defer space.Close()
	if d.ports, err = plug(space, ports); err != nil {
		return err
	}
	return d.ready(ctx)
}

// filledBook returns the name below which goals 3 and 7 find the book of a
// stopped ipamd that has given most of a /16.
func (b *bench) filledBook(ctx context.Context) (string, error) {
	const name = "filled"
	if _, err := os.Stat(filepath.Join(b.dir, name)); err == nil {
		return name, nil
	}
	d, err := b.startDaemon(ctx, name)
	if err != nil {
		return "", err
	}
	if err := errors.Join(d.fill(ctx, b.leases, b.callers), d.stop()); err != nil {
		// A book that is half full is nobody's yardstick.
		return "", errors.Join(fmt.Errorf("fill the book: %w", err), os.RemoveAll(filepath.Join(b.dir, name)))
	}
	return name, nil
}

// launch runs ipamd on the book and the configuration below a name, and waits
// for nothing.
func (b *bench) launch(name string, env ...string) (*daemon, error) {
	dir := filepath.Join(b.dir, name)
	d := &daemon{client: &client.Client{Socket: filepath.Join(dir, "sock")}, tally: &b.tally,
		cmd: exec.Command(b.program, "run", "--config", filepath.Join(dir, "ipamd.toml"))}
	d.cmd.Env = append(os.Environ(), env...)
	d.cmd.Stderr = os.Stderr
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	if err := d.cmd.Start(); err != nil {
		return nil, err
	}
	return d, nil
}

// space returns the daemon's network namespace, to be closed.
func (d *daemon) space() (netns.NsHandle, error) { return netns.GetFromPid(d.cmd.Process.Pid) }

// ready waits until addresses are given.
func (d *daemon) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		_, err := d.client.Ready(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for ipamd: %w", err)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// stop asks it to end, and ends it when it does not.
func (d *daemon) stop() error {
	d.client.CloseIdleConnections()
	if d.ports != nil {
		d.ports.close()
	}
	if err := d.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	last := time.AfterFunc(patience, func() { _ = d.cmd.Process.Kill() })
	defer last.Stop()
	if err := d.cmd.Wait(); err != nil {
		return fmt.Errorf("ipamd: %w", err)
	}
	return nil
}
