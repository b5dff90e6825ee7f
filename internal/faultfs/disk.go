package faultfs

import (
	"os"
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
	dir    string
	mapped []string

	mu     sync.Mutex
	inodes uint64
	trace  []Op
	sure   *Replay // as far as Left has gone
	fault  func(Op) Fault
}

// Mount mounts an empty disk and takes it away when the test ends, whatever
// still has files on it open, and when its process is killed. mapped names the
// files that will be mapped into memory. It skips the test without root or
// /dev/fuse, and before Linux 6.9 where files are mapped.
func Mount(t testing.TB, mapped ...string) *Disk {
	t.Helper()
	realtest.Root(t)
	realtest.Need(t, "sh", "cat", "umount")
	if _, err := os.Stat("/dev/fuse"); err != nil {
		realtest.Lack(t, "needs /dev/fuse")
	}
	d := &Disk{dir: t.TempDir(), mapped: mapped}
	server, err := fs.Mount(d.dir, &folder{disk: d}, &fs.Options{MountOptions: fuse.MountOptions{
		DirectMountStrict: true, FsName: "faultfs", Name: "faultfs", DisableXAttrs: true,
	}})
	if err != nil {
		t.Fatalf("mount a disk at %s: %v", d.dir, err)
	}
	stands := false
	t.Cleanup(func() {
		if !stands {
			_ = unix.Unmount(d.dir, unix.MNT_DETACH) // the test has failed for more than that
		}
	})
	guard(t, d.dir)
	stands = true
	if len(mapped) > 0 && server.KernelSettings().Flags64()&fuse.CAP_PASSTHROUGH == 0 {
		realtest.Lack(t, "needs Linux 6.9, whose FUSE maps a file past its server")
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

// Note records that something happened outside at this moment, so that a
// [Replay] meets it between the operations before and those behind it.
func (d *Disk) Note(what string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.trace = append(d.trace, Op{Kind: Note, Name: what})
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
	return d.replay()
}

func (d *Disk) replay() *Replay {
	return &Replay{trace: slices.Clip(d.trace), files: make(map[uint64]*state),
		names: make(map[string]uint64)}
}

// Left is what the disk is sure to hold when the power goes now: the [Replay.Cut]
// behind the last operation, at the cost of the operations since the last call.
func (d *Disk) Left() Image {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.sure == nil {
		d.sure = d.replay()
	}
	d.sure.trace = slices.Clip(d.trace)
	for more := true; more; {
		_, more = d.sure.Step()
	}
	return d.sure.Cut(nil)
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
	case f.Err != 0 && op.Kind == Sync && !slices.Contains(d.mapped, op.Name):
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
	if op.Kind.Changes() && !slices.Contains(d.mapped, op.Name) {
		d.trace = append(d.trace, op)
	}
	return op, 0
}
