package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/config"
	"github.com/ipamd/ipamd/internal/realtest"
	"github.com/ipamd/ipamd/plumb"
)

// M10, M12: daemon and helper are killed -9 at any moment while slots are made, made anew and
// taken down. In the end there are as many as are wanted, and neither a lease nor a namespace nor
// a port more. A configuration that is read anew has its number of slots.
func TestM10DaemonAndHelperAreKilled(t *testing.T) {
	realtest.Long(t)
	t.Parallel()
	runner := fmt.Sprint(t.Name(), os.Getpid())
	w := prepare(t, quick, slots(6), func(c *config.Config) { c.Book.RunnerUID = runner })
	w.ns.Bridge("rt0", "10.8.64.1/24")
	t.Cleanup(func() {
		paths, _ := plumb.SlotPaths(runner)
		for _, path := range paths {
			_ = plumb.RemoveNetns(path)
		}
	})
	dir := filepath.Dir(w.cfg.Book.Path)
	file := filepath.Join(dir, "ipamd.toml")
	configure := func() {
		t.Helper()
		f, err := os.Create(file)
		if err == nil {
			err = w.cfg.Write(f)
		}
		if err != nil {
			t.Fatal(err)
		}
		f.Close()
	}
	configure()
	started := func(args ...string) (p *process) {
		w.ns.Do(func() { p = launch(t, dir, args...) })
		return p
	}
	daemon := started("run", "--config", file)
	helper := started("plumb", "--slots", "--socket", w.cfg.Socket.Path)
	ready := func() {
		t.Helper()
		realtest.Eventually(t, wait, "the daemon to be ready", func() bool {
			s, err := w.client.Status(ctx)
			return err == nil && s.Ready
		})
	}
	for n := range 31 {
		ready()
		// Those that are there go, and others come.
		if _, err := w.client.ApplyPool(ctx, "default", api.PoolRequest{Prefix: "10.8.64.0/24", MTU: int64(1300 + n), Warm: &api.PoolWarm{Size: 6}}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Duration(rand.IntN(60)) * time.Millisecond)
		if n%3 != 1 {
			_ = daemon.cmd.Process.Kill()
			<-daemon.done
			daemon = started("run", "--config", file)
		}
		if n%3 != 0 {
			_ = helper.cmd.Process.Kill()
			<-helper.done
			helper = started("plumb", "--slots", "--socket", w.cfg.Socket.Path)
		}
	}
	ready()
	is := func(slots int) {
		t.Helper()
		var state string
		defer func() {
			if t.Failed() {
				t.Logf("%s\nthe daemon said: %s", state, daemon.err.String())
			}
		}()
		realtest.Eventually(t, wait, fmt.Sprintf("%d slots and nothing else", slots), func() bool {
			s, err := w.client.Status(ctx)
			if err != nil {
				return false
			}
			p, ports := s.Pools[0], w.rt0()
			paths, err := plumb.SlotPaths(runner)
			state = fmt.Sprintf("slots %+v, free %d, %v, namespaces %v, %v, ports %s", p.Slots, p.Free, p.ByState, paths, err, ports)
			return *p.Slots == api.PoolSlots{Ready: slots, Wanted: slots} && p.Free == 253-uint64(slots) && len(paths) == slots && strings.Count(ports, "sb") == slots
		})
	}
	is(6)
	w.cfg.Pools[0].Warm.Size = 3
	w.cfg.Pools[0].MTU = 1280
	configure()
	daemon.signal(syscall.SIGHUP)
	is(3)
	daemon.signal(syscall.SIGTERM)
	if code := daemon.code(); code != exitOK {
		t.Errorf("the daemon ended with %d: %s", code, daemon.err.String())
	}
	if code, _, output := ipamd(t, "check", w.cfg.Book.Path); code != exitOK {
		t.Errorf("the book: %d, %s", code, output)
	}
}
