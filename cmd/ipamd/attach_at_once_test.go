package main

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/internal/nstest"
)

// plugged reports what is wrong with a sandbox whose attach was answered.
func (w *world) plugged(guest *nstest.NS, answered api.Lease) {
	w.t.Helper()
	has := guest.Exec("sh", "-c", "ip -br addr show dev eth0 2>&1 || true")
	l, err := w.client.Lease(ctx, answered.ID)
	if err != nil || l.Lease.State != api.Bound || !strings.Contains(has, answered.Address+"/") {
		w.t.Errorf("%s was answered; its lease is %+v %v, its namespace has %q", answered.Address, l, err, has)
	}
}

// M1: calls that come at once for one port are all answered, and the port is there.
func TestM1AttachesAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.helper()
	for i := range 8 {
		guest, l := nstest.New(t), w.allocate(fmt.Sprint("attach", i)).Leases[0]
		var calls sync.WaitGroup
		for range 4 {
			calls.Go(func() {
				if _, err := w.client.Attach(ctx, l.ID, api.AttachRequest{Netns: guest.Path()}); err != nil {
					t.Error(err)
				}
			})
		}
		calls.Wait()
		w.plugged(guest, l)
	}
	for i := range 8 {
		guest, name := nstest.New(t), fmt.Sprint("allocate", i)
		var calls sync.WaitGroup
		var given [2]*api.AllocateReply
		for n := range given {
			calls.Go(func() {
				r, err := w.client.Allocate(ctx, api.AllocateRequest{Sandbox: name, Attach: &api.AttachRequest{Netns: guest.Path()}})
				if given[n] = r; err != nil {
					t.Error(err)
				}
			})
		}
		calls.Wait()
		for _, r := range given {
			if r != nil {
				w.plugged(guest, r.Leases[0])
			}
		}
	}
}

// M1: a caller that gives up while its port is made, and asks again, has what it is answered: what
// the first call undoes is its own.
func TestM1AttachAgainBehindOneThatLeft(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.helper()
	answered := 0
	defer func() {
		if answered == 0 {
			t.Error("no call that asked again was answered")
		}
	}()
	for i := range 20 {
		guest := nstest.New(t)
		ask := api.AllocateRequest{Sandbox: fmt.Sprint("s", i), Attach: &api.AttachRequest{Netns: guest.Path()}}
		hurried, leave := context.WithTimeout(ctx, time.Duration(1500+i*300)*time.Microsecond)
		_, _ = w.client.Allocate(hurried, ask)
		leave()
		r, err := w.client.Allocate(ctx, ask)
		if err != nil {
			t.Logf("asked again: %v", err) // its lease may have been released by the first call
			continue
		}
		answered++
		time.Sleep(30 * time.Millisecond) // for what the first call may still undo
		w.plugged(guest, r.Leases[0])
	}
}

// M1: a late detach of a lease that was released, beside the attach of the next one of its name,
// takes no port away that is answered to be there.
func TestM1DetachBesideAnAttach(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.helper()
	for i := range 10 {
		guest := nstest.New(t)
		ask := api.AllocateRequest{Sandbox: fmt.Sprint("s", i), Attach: &api.AttachRequest{Netns: guest.Path()}}
		former, err := w.client.Allocate(ctx, ask)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.client.Release(ctx, former.Leases[0].ID, api.ReleaseRequest{}); err != nil {
			t.Fatal(err)
		}
		var calls sync.WaitGroup
		for range 2 {
			calls.Go(func() {
				time.Sleep(time.Duration(i) * time.Millisecond)
				_, _ = w.client.Detach(ctx, former.Leases[0].ID, api.DetachRequest{}) // it may be refused
			})
		}
		now, err := w.client.Allocate(ctx, ask)
		calls.Wait()
		if err != nil {
			t.Errorf("attach beside a detach: %v", err)
			continue
		}
		w.plugged(guest, now.Leases[0])
	}
}
