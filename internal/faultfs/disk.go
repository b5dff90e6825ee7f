package faultfs

import (
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/ipamd/ipamd/internal/realtest"
)

// A Disk is a mounted folder. All methods are safe for concurrent use.
type Disk struct {
	dir string

	mu     sync.Mutex
	inodes uint64
	trace  []Op
	fault  func(Op) Fault
}

// Mount mounts an empty disk and takes it away when the test ends, whatever
// still has files on it open. mapped names the files that will be mapped into
// memory; they are there from the start, are no part of the record, and cannot
// be removed. It skips the test without root or /dev/fuse.
func Mount(t testing.TB, mapped ...string) *Disk {
	t.Helper()
	realtest.Root(t)
	if _, err := os.Stat("/dev/fuse"); err != nil {
		realtest.Lack(t, "needs /dev/fuse")
	}
	d := &Disk{dir: t.TempDir()}
	root := &folder{disk: d, mapped: mapped}
	_, err := fs.Mount(d.dir, root, &fs.Options{MountOptions: fuse.MountOptions{
		DirectMountStrict: true, FsName: "faultfs", Name: "faultfs", DisableXAttrs: true,
	}})
	if err != nil {
		t.Fatalf("mount a disk at %s: %v", d.dir, err)
	}
	t.Cleanup(func() {
		// Detached, so that a file that a failed test left open cannot keep
		// the mount; who serves it ends with the last of them.
		if err := unix.Unmount(d.dir, unix.MNT_DETACH); err != nil {
			t.Errorf("unmount %s: %v", d.dir, err)
		}
	})
	beside := t.TempDir()
	for _, name := range mapped {
		source, target := filepath.Join(beside, name), filepath.Join(d.dir, name)
		if err := os.WriteFile(source, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := unix.Mount(source, target, "", unix.MS_BIND, ""); err != nil {
			t.Fatalf("mount %s: %v", target, err)
		}
		t.Cleanup(func() {
			if err := unix.Unmount(target, unix.MNT_DETACH); err != nil {
				t.Errorf("unmount %s: %v", target, err)
			}
		})
	}
	return d
}

// Dir is where the disk is mounted.
func (d *Disk) Dir() string { return d.dir }

// Inject lets fn say of each operation how it fails; nil lets all succeed. fn
// is called for one operation at a time and must not use the disk.
func (d *Disk) Inject(fn func(Op) Fault) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fault = fn
}

// Len is the number of operations in the record so far.
func (d *Disk) Len() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.trace)
}

// Replay starts at the empty disk and knows the operations so far.
func (d *Disk) Replay() *Replay {
	d.mu.Lock()
	defer d.mu.Unlock()
	return &Replay{trace: slices.Clip(d.trace), files: make(map[uint64]*state),
		names: make(map[string]uint64)}
}

// do asks whether an operation fails, carries it out, and records it. It is
// what keeps the order of the record that of the disk.
func (d *Disk) do(op Op, carryOut func(Op, Fault)) (Op, unix.Errno) {
	d.mu.Lock()
	defer d.mu.Unlock()
	var f Fault
	if d.fault != nil {
		f = d.fault(op)
	}
	switch {
	case f.Err != 0 && op.Kind == Sync:
		op.Lost = true
		d.trace = append(d.trace, op)
		return op, f.Err
	case f.Err != 0:
		return op, f.Err
	case op.Kind == Write && f.Short > 0 && f.Short < len(op.Data):
		op.Data = op.Data[:f.Short]
	}
	if op.Kind == Create {
		d.inodes++
		op.inode = d.inodes
	}
	if op.Kind == Write {
		op.Data = slices.Clone(op.Data) // the caller's buffer is used again
	}
	if carryOut != nil {
		carryOut(op, f)
	}
	if op.Kind.Changes() {
		d.trace = append(d.trace, op)
	}
	return op, 0
}
