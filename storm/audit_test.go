package storm_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/containerd/containerd/v2/pkg/namespaces"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/client"
	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/netdb"
)

// listen writes down what the book lists, about once a second, to the end.
func (w *world) listen(r *rand.Rand) {
	for w.ctx.Err() == nil && !closed(w.end) {
		asked := w.rec.now()
		ctx, cancel := context.WithTimeout(w.ctx, callTime)
		reply, err := w.client.Leases(ctx, client.LeaseFilter{})
		cancel()
		if err == nil {
			list := listing{asked: asked, answered: w.rec.now(), open: make(map[string]netip.Addr), states: make(map[netip.Addr]api.State)}
			for _, l := range reply.Leases {
				addr := netip.MustParseAddr(l.Address)
				list.states[addr] = l.State
				if isHeld(l) {
					list.open[l.ID] = addr
				}
			}
			w.rec.add(func(h *history) { h.listings = append(h.listings, list) })
			w.rec.counted("list")
		}
		w.rest(r, 500*time.Millisecond, time.Second)
	}
}

// isHeld reports that a lease is its owner's.
func isHeld(l api.Lease) bool {
	return l.State == api.Reserved || l.State == api.Bound || l.State == api.Paused
}

// settle makes passes until the doctor has nothing to say and every lease is
// in one of the states. A pass that a brake holds is confirmed, as a person
// does who has looked: the actors that never release do it in numbers.
func (w *world) settle(states ...api.State) {
	w.t.Helper()
	left := "no answer"
	defer func() {
		if w.t.Failed() {
			w.t.Logf("what was left: %s", left)
		}
	}()
	w.eventually("book, wire and runtime agree", func() bool {
		w.sweep()
		ctx, cancel := context.WithTimeout(w.ctx, patience)
		defer cancel()
		pass, err := w.client.Reconcile(ctx, api.ReconcileRequest{})
		if err == nil && pass.Report.Held != nil {
			w.rec.counted("pass confirmed")
			_, err = w.client.Reconcile(ctx, api.ReconcileRequest{Confirm: true})
		}
		if err != nil {
			left = err.Error()
			return false
		}
		doctor, err := w.client.Doctor(ctx)
		if err != nil {
			left = err.Error()
			return false
		}
		list, err := w.client.Leases(ctx, client.LeaseFilter{})
		if err != nil {
			left = err.Error()
			return false
		}
		left = ""
		for _, f := range doctor.Findings {
			if f.Kind == packetsRefused {
				continue // they did send them
			}
			left += fmt.Sprintf("\n  %s %s: %s", f.Kind, f.Address, f.Detail)
		}
		for _, l := range list.Leases {
			if !slices.Contains(states, l.State) {
				left += fmt.Sprintf("\n  %s is %s: %s, lease %s%s", l.Address, l.State, l.Sandbox, l.ID, w.blockers(ctx, l))
			}
		}
		return left == ""
	})
}

func (w *world) blockers(ctx context.Context, l api.Lease) (out string) {
	reply, err := w.client.Lease(ctx, l.ID)
	if err != nil {
		return ""
	}
	for _, b := range reply.Blockers {
		out += ", " + b.Detail
	}
	return out
}

// recount compares who lives by the actors, the kernel, the book and
// containerd, while all stand still.
func (w *world) recount() {
	w.t.Helper()
	living := len(w.rec.living())
	w.rec.counted(fmt.Sprintf("living at the recount: %d of", living))
	w.eventually(fmt.Sprintf("rt0 has %d ports, as many as sandboxes live", living), func() bool {
		ports, err := w.plugged()
		return err == nil && len(ports) == living
	})
	contained, recorded := 0, make(map[string]bool)
	for _, l := range w.allAreInTheirPlaces() {
		for _, c := range l.Containers {
			recorded[c.ID] = true
		}
		if len(l.Containers) > 0 {
			contained++
		}
	}
	// A lease keeps former containers until its owner names them as gone.
	w.eventually(fmt.Sprintf("containerd has a container for each of the %d leases that record one, and no other", contained), func() bool {
		w.sweep()
		there := w.containers()
		return len(there) == contained && !slices.ContainsFunc(there, func(id string) bool { return !recorded[id] })
	})
}

// plugged are the ports of rt0 but the receiver's; an error when one went while they were listed. Those of a
// dead namespace stay until the kernel comes to it.
func (w *world) plugged() (names []string, err error) {
	links, err := w.ns.Netlink().LinkList()
	for _, l := range links {
		if l.Attrs().MasterIndex == w.bridge && (w.receiver == nil || l.Attrs().Name != w.receiver.host) {
			names = append(names, l.Attrs().Name)
		}
	}
	return names, err
}

// containers are those of the actors.
func (w *world) containers() (ids []string) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(namespaces.WithNamespace(w.ctx, namespaces.Default), patience)
	defer cancel()
	list, err := w.ctrd.ContainerService().List(ctx)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, c := range list {
		if !strings.HasPrefix(c.ID, recordsOf) {
			ids = append(ids, c.ID)
		}
	}
	return ids
}

// nothingIsLeft looks where leaks would be.
func (w *world) nothingIsLeft() {
	w.t.Helper()
	w.eventually("the last ports are gone", func() bool { ports, err := w.plugged(); return err == nil && len(ports) == 0 })
	w.eventually("no container is left", func() bool { w.sweep(); return len(w.containers()) == 0 })
	if left, err := os.ReadDir(string(w.spaces)); err != nil || len(left) != 0 {
		w.t.Errorf("%d namespaces are left, %v", len(left), err)
	}
	doctor := exec.Command(w.ipamctl, "--socket", w.client.Socket, "doctor")
	if out, err := doctor.CombinedOutput(); err != nil {
		w.t.Errorf("ipamctl doctor: %v\n%s", err, out)
	}
}

// readBook checks every invariant of the stopped daemon's book, and returns
// its history, oldest first.
func (w *world) readBook() []ipam.Change {
	w.t.Helper()
	b, err := netdb.Open(w.daemon.book, netdb.Options{ReadOnly: true, Synchronous: "full",
		QuarantineShare: 0.25, Tombstone: time.Hour, KeepChanges: 1 << 20, KeepFor: 24 * time.Hour})
	if err != nil {
		w.t.Fatal(err)
	}
	defer b.Close()
	found, err := b.Check(w.t.Context())
	if err != nil {
		w.t.Errorf("check the book: %v", err)
	}
	for _, v := range found {
		if v.Invariant == netdb.RowsAreAsRecorded && w.rec.did(wallStepped) > 0 {
			continue // the rows' times were edited
		}
		w.t.Errorf("broken invariant: %s", v)
	}
	changes, err := b.History(w.t.Context(), ipam.Query{Limit: 1 << 20})
	if err != nil {
		w.t.Fatal(err)
	}
	slices.Reverse(changes)
	return slices.DeleteFunc(changes, func(c ipam.Change) bool { return c.Subject != ipam.OfLease })
}

// report joins what may be too long to read.
func report(faults []string) string {
	const enough = 20
	more := ""
	if n := len(faults) - enough; n > 0 {
		faults, more = faults[:enough], fmt.Sprintf("\nand %d more", n)
	}
	return strings.Join(faults, "\n") + more
}
