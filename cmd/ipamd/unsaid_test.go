package main

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/config"
	"github.com/ipamd/ipamd/internal/nstest"
	"github.com/ipamd/ipamd/internal/realtest"
)

// G4: a bind is answered though it is not known in time which namespace it names, and that is recorded as soon as it is known,
// without another bind; but not of a path that another sandbox's lease records, too. One that is not there stays unknown.
func TestG4WhatABindDidNotLearnIsFilledIn(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := unix.Mount(dir, dir, "", unix.MS_BIND, ""); err != nil { // Hang unmounts what is there at the end
		t.Fatal(err)
	}
	w := newWorld(t, slow, func(c *config.Config) { c.Bridge.Netns = []string{dir} })
	p, shared := w.ns.Port("rt0"), w.ns.Port("rt0")
	at := func(name string, ns *nstest.NS) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, nil, 0o444); err != nil {
			t.Fatal(err)
		}
		if err := unix.Mount(ns.Path(), path, "", unix.MS_BIND, ""); err != nil {
			t.Fatal(err)
		}
		return path
	}
	own, twice, none := at("own", p.NS), at("twice", shared.NS), filepath.Join(dir, "none")
	t.Cleanup(func() { _ = unix.Unmount(own, unix.MNT_DETACH); _ = unix.Unmount(twice, unix.MNT_DETACH) })
	answer := nstest.Hang(t, dir)
	var leases []api.Lease
	for i, path := range []string{own, twice, twice, none} {
		l := w.boundAs(fmt.Sprint("s", i), api.BindRequest{Netns: path}, nil)
		if l.NetnsInode != 0 {
			t.Fatalf("its path hangs, and it is %+v", l)
		}
		leases = append(leases, l)
	}
	answer()
	if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
		t.Fatal(err)
	}
	inode := func(l api.Lease) uint64 {
		got, err := w.client.Lease(ctx, l.ID)
		if err != nil {
			t.Fatal(err)
		}
		return got.Lease.NetnsInode
	}
	realtest.Eventually(t, wait, "the namespace to be recorded", func() bool { return inode(leases[0]) != 0 })
	var st unix.Stat_t
	if err := unix.Stat(own, &st); err != nil || inode(leases[0]) != st.Ino {
		t.Errorf("recorded is %d, and it is %d; %v", inode(leases[0]), st.Ino, err)
	}
	w.pass()
	for _, l := range leases[1:] {
		if n := inode(l); n != 0 {
			t.Errorf("%s has namespace %d", l.Sandbox, n)
		}
	}
	settled, err := w.program.book.Lease(leases[3].ID)
	if err != nil || settled.Plug.Unsaid != 0 {
		t.Errorf("that nothing is at its path is known, and it is asked for again: %+v, %v", settled, err)
	}
}
