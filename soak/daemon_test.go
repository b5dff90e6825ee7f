package soak_test

import (
	"bytes"
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ipamd/ipamd/client"
	"github.com/ipamd/ipamd/internal/nstest"
	"github.com/ipamd/ipamd/internal/realtest"
	"github.com/ipamd/ipamd/ipam"
)

// patience bounds each wait. It is far beyond what two busy cores and a slow
// disk need.
const patience = 5 * time.Minute

var poolPrefix = netip.MustParsePrefix("10.8.0.0/22")

// large is a pool of which no address comes back in any time.
var large = netip.MustParsePrefix("fd00:10:8::/64")

// An address comes back soon, the pool is small and the history is short, so
// that the book is as large after a few seconds as it will ever be. A call is
// never refused for what the machine took.
const configuration = `
[book]
path = '%[1]s/book.db'
changes_kept = 1000
[socket]
path = '%[1]s/sock'
group = ''
max_connections = %[3]d
deadline = '%[4]s'
[[pool]]
name = 'default'
prefix = '%[2]s'
[allocation]
cooldown = '1s'
cooldown_min = '500ms'
[runtime]
kind = 'none'
[reconcile]
every = '10s'
[log]
format = 'text'
`

// A daemon is ipamd in a process of its own.
type daemon struct {
	t      testing.TB
	dir    string
	client *client.Client
	cmd    *exec.Cmd
	ended  chan struct{}
}

// start builds ipamd and waits until it is ready. It ends with the test, and
// must then end in order.
func start(t testing.TB, maxConns int) *daemon { return startWith(t, poolPrefix, maxConns) }

func startWith(t testing.TB, pool netip.Prefix, maxConns int) *daemon {
	t.Helper()
	realtest.Root(t)
	realtest.Need(t, "nsenter")
	// Not t.TempDir: a socket's path ends at 107 bytes.
	dir, err := os.MkdirTemp("", "soak-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	ns := nstest.New(t)
	ns.Bridge("rt0", netip.PrefixFrom(ipam.FirstHost(pool), pool.Bits()).String())
	config := filepath.Join(dir, "ipamd.toml")
	if err := os.WriteFile(config, fmt.Appendf(nil, configuration, dir, pool, maxConns, patience), 0o600); err != nil {
		t.Fatal(err)
	}
	d := &daemon{t: t, dir: dir, client: &client.Client{Socket: filepath.Join(dir, "sock")}, ended: make(chan struct{})}
	// nsenter becomes ipamd: the pid is the daemon's.
	d.cmd = exec.Command("nsenter", "--net="+ns.Path(), realtest.Program(t, "cmd/ipamd"), "run", "--config", config)
	var log bytes.Buffer
	d.cmd.Stdout, d.cmd.Stderr = &log, &log
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := d.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(d.ended)
		_ = d.cmd.Wait() // how it ended is in ProcessState
	}()
	t.Cleanup(func() {
		d.stop()
		d.client.CloseIdleConnections()
		if t.Failed() {
			message := log.String()
			t.Logf("ipamd said at the end:\n%s", message[max(0, len(message)-4000):])
		}
	})
	realtest.Eventually(t, patience, "ipamd is ready", func() bool {
		select {
		case <-d.ended:
			t.Fatalf("ipamd ended: %v\n%s", d.cmd.ProcessState, log.String())
		default:
		}
		_, err := d.client.Ready(context.Background())
		return err == nil
	})
	return d
}

func (d *daemon) stop() {
	_ = d.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
	select {
	case <-d.ended:
	case <-time.After(patience):
		d.t.Error("ipamd does not end")
		_ = d.cmd.Process.Kill()
		<-d.ended
	}
	if !d.cmd.ProcessState.Success() {
		d.t.Errorf("ipamd ended with %v", d.cmd.ProcessState)
	}
}

// A sample is what the daemon holds at a moment.
type sample struct {
	resident   int // bytes
	heap       int // bytes that the last collection left
	sandboxes  int // that the workers had made
	files      int
	goroutines int
}

// sample reads one. Reading takes a connection of its own, which is one file
// and two goroutines of each sample.
func (d *daemon) sample() sample {
	d.t.Helper()
	var s sample
	proc := filepath.Join("/proc", strconv.Itoa(d.cmd.Process.Pid))
	files, err := os.ReadDir(filepath.Join(proc, "fd"))
	if err != nil {
		d.t.Fatal(err)
	}
	s.files = len(files)
	status, err := os.ReadFile(filepath.Join(proc, "status"))
	if err != nil {
		d.t.Fatal(err)
	}
	s.resident = 1024 * number(d.t, string(status), "VmRSS:")
	metrics, err := get(filepath.Join(d.dir, "sock"), "/metrics")
	if err != nil {
		d.t.Fatal(err)
	}
	s.goroutines = number(d.t, metrics, "go_goroutines ")
	// What a collection leaves, and as much again, is when the next one begins
	// (GOGC=100). Unlike the heap of the moment it has no garbage in it.
	s.heap = number(d.t, metrics, "go_memstats_next_gc_bytes ") / 2
	return s
}

// files are what the daemon has open.
func (d *daemon) files() string {
	all, _ := filepath.Glob(filepath.Join("/proc", strconv.Itoa(d.cmd.Process.Pid), "fd", "*"))
	for i, file := range all {
		to, _ := os.Readlink(file)
		all[i] = filepath.Base(file) + " " + to
	}
	return strings.Join(all, "\n")
}

// number finds the line that begins so, and its number.
func number(t testing.TB, text, key string) int {
	t.Helper()
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, key); ok {
			n, err := strconv.ParseFloat(strings.Fields(rest)[0], 64)
			if err != nil {
				t.Fatal(err)
			}
			return int(n)
		}
	}
	t.Fatalf("no %q in %.200q", key, text)
	return 0
}
