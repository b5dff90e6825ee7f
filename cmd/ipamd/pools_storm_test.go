package main

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/client"
	"github.com/ipamd/ipamd/internal/realtest"
)

// TestAWatcherFollowsPoolsOverKills: pools grow, shrink, drain, are removed by force and made
// again while callers allocate, bind and release, and ipamd is killed a few times. No caller
// is given what another has. A watcher that began at revision 0 ends with the listing, and
// the book is whole.
func TestAWatcherFollowsPoolsOverKills(t *testing.T) {
	t.Parallel()
	realtest.Need(t, "nsenter")
	w := prepare(t, slow)
	w.ns.Bridge("rt0", "10.8.64.1/25", "10.8.64.1/24", "10.8.64.1/23")
	file := filepath.Join(t.TempDir(), "ipamd.toml")
	var text bytes.Buffer
	must(t, w.cfg.Write(&text))
	must(t, os.WriteFile(file, text.Bytes(), 0o600))
	daemon := w.apart(file)
	defer func() {
		_ = daemon.Process.Kill()
		_ = daemon.Wait() // it was killed
	}()

	first, err := w.client.Leases(ctx, client.LeaseFilter{})
	must(t, err)
	watching, endWatch := context.WithCancel(ctx)
	defer endWatch()
	var mu sync.Mutex
	var at int64
	lists, gaps, followed, states := 0, 0, make(map[string]string), make(map[string]api.State)
	go func() {
		for u := range w.client.Watch(watching, client.WatchFilter{Epoch: first.Epoch}) {
			mu.Lock()
			switch {
			case u.List != nil:
				lists++
			case u.Event != nil:
				if at = u.Event.Revision; u.Event.Change == nil || u.Event.Change.Address == "" {
				} else {
					c := u.Event.Change
					if was, is := states[c.Address]; is && was != c.From {
						gaps++ // a change of it was not sent
					}
					states[c.Address], followed[c.Address] = c.To, fmt.Sprint(c.LeaseID, c.To, c.Revision)
					if c.To == api.Free {
						delete(followed, c.Address)
					}
				}
			}
			mu.Unlock()
		}
	}()

	running, stop := context.WithCancel(ctx)
	defer stop()
	var group sync.WaitGroup
	var lives, changes atomic.Int64
	var holders sync.Map // address: sandbox, from the answer to the wish to release
	for c := range 16 {
		group.Go(func() {
			for i := 0; running.Err() == nil; i++ {
				name := fmt.Sprintf("s-%d-%d", c, i)
				r, err := w.client.Allocate(running, api.AllocateRequest{Sandbox: name})
				if err != nil {
					time.Sleep(time.Millisecond) // killed, or the pool drains or is gone
					continue
				}
				l := r.Leases[0]
				if other, had := holders.LoadOrStore(l.Address, name); had {
					t.Errorf("%s was given to %s, and %s has it", l.Address, name, other)
				}
				if i%8 == 0 {
					_, _ = w.client.Bind(running, l.ID, api.BindRequest{HostInterface: fmt.Sprintf("v%d-%d", c, i)})
				}
				if lives.Add(1); i%32 == 31 {
					continue // it is kept to the end
				}
				holders.Delete(l.Address)
				_, _ = w.client.Release(running, l.ID, api.ReleaseRequest{}) // what was not released stays held
			}
		})
	}
	group.Go(func() {
		for i := 0; running.Err() == nil; i++ {
			list, err := w.client.Pool(running, "default")
			switch {
			case err != nil:
				_, err = w.client.ApplyPool(running, "default", api.PoolRequest{Prefix: "10.8.64.0/24"})
			case i%12 == 11:
				_, err = w.client.RemovePool(running, "default", client.Removal{UID: list.Pools[0].UID, Mode: api.RemoveForce, Reason: "it moves"})
			case i%4 == 3:
				_, err = w.client.DrainPool(running, "default", api.DrainRequest{UID: list.Pools[0].UID})
			default:
				_, err = w.client.ApplyPool(running, "default", api.PoolRequest{Prefix: []string{"10.8.64.0/23", "10.8.64.0/25", "10.8.64.0/24"}[i%4], Drain: true})
			}
			if err == nil {
				changes.Add(1)
			}
			time.Sleep(10 * time.Millisecond)
		}
	})
	for range 3 {
		alive, made := lives.Load()+200, changes.Load()+15
		realtest.Eventually(t, wait, "callers and pools to go on", func() bool { return lives.Load() > alive && changes.Load() > made })
		_ = daemon.Process.Kill()
		_ = daemon.Wait() // it was killed
		daemon = w.apart(file)
	}
	stop()
	group.Wait()
	_ = daemon.Process.Kill()
	_ = daemon.Wait() // it was killed
	w.start()         // its book is checked when it stops

	recorded := func() (map[string]string, int64) {
		mu.Lock()
		defer mu.Unlock()
		return maps.Clone(followed), at
	}
	realtest.Eventually(t, wait, "the watcher to have what the listing has", func() bool {
		list, err := w.client.Leases(ctx, client.LeaseFilter{})
		if err != nil {
			return false
		}
		want := make(map[string]string)
		for _, l := range list.Leases {
			want[l.Address] = fmt.Sprint(l.ID, l.State, l.Revision)
		}
		got, rev := recorded()
		return rev >= list.Revision && maps.Equal(got, want)
	})
	mu.Lock()
	defer mu.Unlock()
	if lists > 0 || gaps > 0 {
		t.Errorf("the watcher was given %d listings, and %d changes of addresses that were in another state", lists, gaps)
	}
}
