package main

import (
	"fmt"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ipamd/ipamd/internal/nstest"
	"github.com/ipamd/ipamd/internal/realtest"
)

// The incident, by CNI: the row of a container that runs is lost, and many are added after
// that. None gets its address, below the reference bridge or by ipamd's own plugging.
func TestTheIncidentByCNI(t *testing.T) {
	t.Parallel()
	realtest.Need(t, "sqlite3")
	for _, kind := range []string{"bridge", "main"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, "10.8.64.0/29", "") // five addresses
			if w.network("n", "1.1.0", ""); kind == "main" {
				w.mainNetwork("n", "1.1.0", "")
			}
			victim := nstest.New(t)
			w.added(w.cnitool("add", "n", victim.Path()))
			address := w.leases()[0].Address
			w.stop()
			if out, err := exec.Command("sqlite3", filepath.Join(w.dir, "book.db"), "DELETE FROM leases WHERE address = '"+address+"'").CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			w.start()
			for i := range 6 {
				box := nstest.New(t)
				out, err := w.cnitool("add", "n", box.Path())
				if (err == nil) != (i < 4) {
					t.Errorf("add %d of five addresses, one of which is in use: %v", i, err)
				}
				if err == nil && w.added(out, err).IPs[0].Address.IP.String() == address {
					t.Fatalf("%s was given again while its container lives", address)
				}
			}
			victim.Exec("busybox", "ping", "-c1", "-W5", "10.8.64.1")
			realtest.Eventually(t, wait, "who lives with it is seen, and nobody else has it", func() bool {
				r, err := w.client.Whois(t.Context(), address)
				return err == nil && r.State == "quarantined"
			})
		})
	}
}

// N5: ADD and DEL by four callers, while plugins and the daemon are killed at random. No
// address is two containers' at any moment, and at the end nothing is leased and nothing is
// plugged in. The same for ten thousand rounds is for a longer run.
func TestN5RandomKills(t *testing.T) {
	realtest.Long(t)
	t.Parallel()
	w := newWorld(t, "10.8.64.0/26", "")
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	const callers, rounds = 4, 12
	type holder struct{ container, address string }
	var (
		mu   sync.Mutex
		held = make(map[string]holder) // by address, while its container is plugged in
		all  sync.WaitGroup
	)
	boxes := make([]*nstest.NS, callers)
	for i := range boxes {
		boxes[i] = nstest.New(t)
	}
	conf := fmt.Sprintf(`{"cniVersion": "1.1.0", "name": "n", "type": "ipamd", "socket": %q, "wait": "60s"}`, w.socket)
	for i := range callers {
		all.Go(func() {
			dice := rand.New(rand.NewPCG(seed, uint64(i)))
			for round := range rounds {
				container := fmt.Sprintf("c%d-%d", i, round)
				env := []string{"CNI_CONTAINERID=" + container, "CNI_NETNS=" + boxes[i].Path(), "CNI_IFNAME=eth0"}
				for dice.IntN(3) == 0 { // killed in mid-ADD
					w.killed(conf, time.Duration(dice.IntN(25))*time.Millisecond, append(env, "CNI_COMMAND=ADD")...)
				}
				out, err := w.plugin("ADD", conf, env...)
				if err != nil {
					t.Errorf("add %s: %v", container, err)
					return
				}
				address, err := addressOf(out)
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				if other, is := held[address]; is {
					t.Errorf("%s is %s's and %s's", address, other.container, container)
				}
				held[address] = holder{container, address}
				mu.Unlock()
				time.Sleep(time.Duration(dice.IntN(5)) * time.Millisecond)
				mu.Lock()
				delete(held, address)
				mu.Unlock()
				for dice.IntN(3) == 0 {
					w.killed(conf, time.Duration(dice.IntN(25))*time.Millisecond, append(env, "CNI_COMMAND=DEL")...)
				}
				if _, err := w.plugin("DEL", conf, env...); err != nil {
					t.Errorf("del %s: %v", container, err)
				}
			}
		})
	}
	done := make(chan struct{})
	go func() { all.Wait(); close(done) }()
	for n := 0; ; n++ {
		select {
		case <-done:
		case <-time.After(400 * time.Millisecond):
			if n < 4 {
				_ = w.daemon.Process.Signal(syscall.SIGKILL)
				_ = w.daemon.Wait()
				w.start()
			}
			continue
		}
		break
	}
	if left := w.ports(); left != "" {
		t.Errorf("left are ports %s", left)
	}
	w.none("after all are deleted")
}

// killed begins a call of the plugin and kills it.
func (w *world) killed(conf string, after time.Duration, env ...string) {
	cmd := w.command(env, filepath.Join(w.bin, "ipamd"))
	in, err := cmd.StdinPipe()
	if err != nil || cmd.Start() != nil {
		return
	}
	_, _ = in.Write([]byte(conf))
	_ = in.Close()
	time.Sleep(after)
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
}
