package faultfs

import (
	"context"
	"os"
	"slices"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// A folder is the root of a disk. There are no others below it.
type folder struct {
	fs.Inode
	disk *Disk
}

var (
	_ fs.NodeLookuper = (*folder)(nil)
	_ fs.NodeCreater  = (*folder)(nil)
	_ fs.NodeUnlinker = (*folder)(nil)
	_ fs.NodeRenamer  = (*folder)(nil)
	_ fs.NodeFsyncer  = (*folder)(nil)
	_ fs.NodeStatfser = (*folder)(nil)

	_ fs.NodeOpener    = (*file)(nil)
	_ fs.NodeGetattrer = (*file)(nil)
	_ fs.NodeSetattrer = (*file)(nil)
	_ fs.NodeReader    = (*file)(nil)
	_ fs.NodeWriter    = (*file)(nil)
	_ fs.NodeFsyncer   = (*file)(nil)
)

func (f *folder) Lookup(_ context.Context, name string, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	var found *fs.Inode
	if _, errno := f.disk.do(Op{Kind: Stat, Name: name}, func(Op, Fault) {
		if found = f.GetChild(name); found != nil {
			found.Operations().(*file).attr(&out.Attr)
		}
	}); errno != 0 {
		return nil, errno
	}
	if found == nil {
		return nil, syscall.ENOENT
	}
	return found, 0
}

func (f *folder) Create(ctx context.Context, name string, _, mode uint32, out *fuse.EntryOut) (*fs.Inode, fs.FileHandle, uint32, syscall.Errno) {
	op, errno := f.disk.do(Op{Kind: Create, Name: name}, nil)
	if errno != 0 {
		return nil, nil, 0, errno
	}
	made := &file{disk: f.disk, mode: mode & 0o7777, inode: op.inode}
	if slices.Contains(f.disk.mapped, name) {
		memory, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC)
		if err != nil {
			return nil, nil, 0, fs.ToErrno(err)
		}
		made.past = os.NewFile(uintptr(memory), name)
	}
	made.attr(&out.Attr)
	handle, flags := made.handle()
	return f.NewPersistentInode(ctx, made, fs.StableAttr{Mode: syscall.S_IFREG}), handle, flags, 0
}

func (f *folder) Unlink(_ context.Context, name string) syscall.Errno {
	_, errno := f.disk.do(Op{Kind: Unlink, Name: name}, nil)
	return errno
}

func (f *folder) Rename(_ context.Context, name string, _ fs.InodeEmbedder, to string, flags uint32) syscall.Errno {
	if flags&^unix.RENAME_NOREPLACE != 0 { // that one the kernel has looked at
		return syscall.EINVAL
	}
	_, errno := f.disk.do(Op{Kind: Rename, Name: name, To: to}, nil)
	return errno
}

func (f *folder) Fsync(context.Context, fs.FileHandle, uint32) syscall.Errno {
	_, errno := f.disk.do(Op{Kind: SyncDir}, nil)
	return errno
}

// Statfs reports 4 GiB that are all free, or of none with ENOSPC.
func (f *folder) Statfs(_ context.Context, out *fuse.StatfsOut) syscall.Errno {
	out.Bsize, out.Frsize, out.NameLen = 4096, 4096, 255
	out.Blocks = 1 << 20
	_, errno := f.disk.do(Op{Kind: Room}, nil)
	if errno == syscall.ENOSPC {
		return 0
	}
	out.Bfree, out.Bavail = out.Blocks, out.Blocks
	return errno
}

// A file is what every reader but a power loss sees.
type file struct {
	fs.Inode
	disk  *Disk
	mode  uint32
	inode uint64

	data []byte   // under disk.mu
	past *os.File // of a mapped file, instead of data
}

// A pass lets the kernel read, write and map a file past this server.
type pass struct{ to *os.File }

func (p pass) PassthroughFd() (int, bool) { return int(p.to.Fd()), true }

// handle is for a file that is opened. What is not mapped the kernel may not
// cache, so that each read and write comes here.
func (f *file) handle() (fs.FileHandle, uint32) {
	if f.past != nil {
		return pass{f.past}, 0
	}
	return nil, fuse.FOPEN_DIRECT_IO
}

func (f *file) name() string {
	name, _ := f.Parent()
	return name
}

func (f *file) attr(out *fuse.Attr) {
	out.Mode, out.Size, out.Nlink = syscall.S_IFREG|f.mode, uint64(len(f.data)), 1
	if f.past != nil {
		if st, err := f.past.Stat(); err == nil {
			out.Size = uint64(st.Size())
		}
	}
}

func (f *file) Open(context.Context, uint32) (fs.FileHandle, uint32, syscall.Errno) {
	_, errno := f.disk.do(Op{Kind: Open, Name: f.name(), inode: f.inode}, nil)
	handle, flags := f.handle()
	return handle, flags, errno
}

func (f *file) Getattr(_ context.Context, _ fs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	_, errno := f.disk.do(Op{Kind: Stat, Name: f.name(), inode: f.inode}, func(Op, Fault) { f.attr(&out.Attr) })
	return errno
}

func (f *file) Setattr(_ context.Context, _ fs.FileHandle, in *fuse.SetAttrIn, out *fuse.AttrOut) syscall.Errno {
	if size, ok := in.GetSize(); ok {
		var past error
		_, errno := f.disk.do(Op{Kind: Truncate, Name: f.name(), inode: f.inode, Off: int64(size)}, func(op Op, _ Fault) {
			if f.past != nil {
				past = f.past.Truncate(op.Off)
			} else {
				f.data = resized(f.data, op.Off)
			}
		})
		if errno != 0 || past != nil {
			return max(errno, fs.ToErrno(past))
		}
	}
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	if mode, ok := in.GetMode(); ok {
		f.mode = mode & 0o7777
	}
	f.attr(&out.Attr)
	return 0
}

func (f *file) Read(_ context.Context, _ fs.FileHandle, dest []byte, off int64) (fuse.ReadResult, syscall.Errno) {
	n := 0
	_, errno := f.disk.do(Op{Kind: Read, Name: f.name(), inode: f.inode, Off: off}, func(_ Op, bad Fault) {
		if off < int64(len(f.data)) {
			n = copy(dest, f.data[off:])
		}
		for i := range dest[:n] {
			if bad.Garbled {
				dest[i] = ^dest[i]
			}
		}
	})
	return fuse.ReadResultData(dest[:n]), errno
}

func (f *file) Write(_ context.Context, _ fs.FileHandle, data []byte, off int64) (uint32, syscall.Errno) {
	op, errno := f.disk.do(Op{Kind: Write, Name: f.name(), inode: f.inode, Off: off, Data: data}, func(op Op, _ Fault) {
		f.data = written(f.data, op.Off, op.Data)
	})
	if errno != 0 {
		return 0, errno
	}
	return uint32(len(op.Data)), 0
}

func (f *file) Fsync(context.Context, fs.FileHandle, uint32) syscall.Errno {
	_, errno := f.disk.do(Op{Kind: Sync, Name: f.name(), inode: f.inode}, nil)
	return errno
}

// resized cuts a file off or fills it up with zeros.
func resized(data []byte, size int64) []byte {
	if size <= int64(len(data)) {
		clear(data[size:]) // or they would be back when it grows
		return data[:size]
	}
	return append(data, make([]byte, size-int64(len(data)))...)
}

// written puts bytes into a file, behind a hole of zeros if need be.
func written(data []byte, off int64, put []byte) []byte {
	if end := off + int64(len(put)); end > int64(len(data)) {
		data = resized(slices.Grow(data, int(end)-len(data)), end)
	}
	copy(data[off:], put)
	return data
}
