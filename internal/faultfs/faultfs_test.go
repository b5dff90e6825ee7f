package faultfs_test

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ipamd/ipamd/internal/faultfs"
)

func must(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// at replays the first n operations and cuts the power.
func at(d *faultfs.Disk, n int, chance *rand.Rand) faultfs.Image {
	r := d.Replay()
	for r.Done() < n {
		r.Step()
	}
	return r.Cut(chance)
}

func create(t *testing.T, d *faultfs.Disk, name string) *os.File {
	t.Helper()
	f, err := os.OpenFile(filepath.Join(d.Dir(), name), os.O_RDWR|os.O_CREATE, 0o600)
	must(t, err)
	t.Cleanup(func() { f.Close() })
	return f
}

// mapped maps the first page of a file.
func mapped(t *testing.T, f *os.File) []byte {
	t.Helper()
	page, err := unix.Mmap(int(f.Fd()), 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	must(t, err)
	t.Cleanup(func() { must(t, unix.Munmap(page)) })
	return page
}

func syncDir(t *testing.T, d *faultfs.Disk) {
	t.Helper()
	dir, err := os.Open(d.Dir())
	must(t, err)
	defer dir.Close()
	must(t, dir.Sync())
}

// What was not synced is read by all, and is gone after a cut; what was
// synced is there, under a name only once the folder was synced.
func TestACutForgetsWhatWasNotSynced(t *testing.T) {
	d := faultfs.Mount(t)
	f := create(t, d, "a")
	write := func(text string) {
		t.Helper()
		_, err := f.WriteAt([]byte(text), 0)
		must(t, err)
	}
	var left []faultfs.Image // at the moments below
	now := func() int {
		left = append(left, d.Left())
		return d.Len()
	}
	write("one")
	must(t, f.Sync())
	unnamed := now()
	syncDir(t, d)
	synced := now()
	write("two")
	must(t, f.Truncate(2))
	if got, err := os.ReadFile(filepath.Join(d.Dir(), "a")); err != nil || string(got) != "tw" {
		t.Errorf("with power: %q, %v", got, err)
	}
	unsynced := now()
	must(t, f.Sync())
	must(t, os.Rename(filepath.Join(d.Dir(), "a"), filepath.Join(d.Dir(), "b")))
	renamed := now()
	syncDir(t, d)
	must(t, os.Remove(filepath.Join(d.Dir(), "b")))
	removed := now()
	syncDir(t, d)
	end := now()

	for i, tt := range []struct {
		when string
		at   int
		want faultfs.Image
	}{
		{"before the folder is synced", unnamed, faultfs.Image{}},
		{"behind that", synced, faultfs.Image{"a": []byte("one")}},
		{"written and not synced", unsynced, faultfs.Image{"a": []byte("one")}},
		{"synced, renamed", renamed, faultfs.Image{"a": []byte("tw")}},
		{"removed", removed, faultfs.Image{"b": []byte("tw")}},
		{"the folder synced", end, faultfs.Image{}},
	} {
		if got := at(d, tt.at, nil); got.Sum() != tt.want.Sum() {
			t.Errorf("%s: %q, want %q", tt.when, got, tt.want)
		}
		if left[i].Sum() != tt.want.Sum() {
			t.Errorf("%s there was sure to be left %q, want %q", tt.when, left[i], tt.want)
		}
	}
}

// By chance, each of two unsynced writes survives alone, and torn at a sector.
func TestACutMayKeepSome(t *testing.T) {
	d := faultfs.Mount(t)
	f := create(t, d, "a")
	syncDir(t, d)
	x, y := bytes.Repeat([]byte("x"), 1024), bytes.Repeat([]byte("y"), 1024)
	_, err := f.WriteAt(x, 0)
	must(t, err)
	_, err = f.WriteAt(y, 1024)
	must(t, err)
	seen := make(map[string]bool)
	for seed := range uint64(500) {
		data := at(d, d.Len(), rand.New(rand.NewPCG(seed, 1)))["a"]
		var shape string
		for _, c := range [][]byte{data[:min(512, len(data))], data[min(512, len(data)):min(1024, len(data))], data[min(1024, len(data)):]} {
			shape += "[" + string(bytes.TrimRight(bytes.ReplaceAll(bytes.ReplaceAll(c, x[:512], []byte("x")), y[:512], []byte("y")), "\x00")) + "]"
		}
		seen[shape] = true
	}
	for _, shape := range []string{"[][][]", "[x][x][]", "[][][yy]", "[x][x][yy]", "[x][][]", "[][x][]", "[][][y]"} {
		if !seen[shape] {
			t.Errorf("%s never came: %v", shape, seen)
		}
	}
	must(t, f.Sync())
	for seed := range uint64(100) {
		if got := at(d, d.Len(), rand.New(rand.NewPCG(seed, 1))); !bytes.Equal(got["a"], append(bytes.Clone(x), y...)) {
			t.Fatalf("seed %d: something is missing of what was synced", seed)
		}
	}
}

// A sync that failed is not made good by the next one.
func TestAFailedSyncIsForgotten(t *testing.T) {
	d := faultfs.Mount(t)
	f := create(t, d, "a")
	syncDir(t, d)
	_, err := f.WriteAt([]byte("lost"), 0)
	must(t, err)
	d.Inject(func(op faultfs.Op) (bad faultfs.Fault) {
		if op.Kind == faultfs.Sync {
			bad.Err = syscall.EIO
		}
		return bad
	})
	if err := f.Sync(); !errors.Is(err, syscall.EIO) {
		t.Errorf("sync: %v", err)
	}
	d.Inject(nil)
	must(t, f.Sync())
	got := make([]byte, 4)
	_, err = f.ReadAt(got, 0)
	if must(t, err); string(got) != "lost" || len(at(d, d.Len(), nil)["a"]) != 0 {
		t.Errorf("it is read as %q, and left is %q", got, at(d, d.Len(), nil))
	}
}

// Each operation fails as the fault says.
func TestFaultsAreAsInjected(t *testing.T) {
	d := faultfs.Mount(t)
	f := create(t, d, "a")
	_, err := f.WriteAt([]byte("abcdef"), 0)
	must(t, err)
	path := filepath.Join(d.Dir(), "a")
	ops := map[faultfs.Kind]func() error{
		faultfs.Stat:     func() error { _, err := os.Stat(path); return err },
		faultfs.Open:     func() error { _, err := os.Open(path); return err },
		faultfs.Read:     func() error { _, err := f.ReadAt(make([]byte, 1), 0); return err },
		faultfs.Room:     func() error { return syscall.Statfs(d.Dir(), new(syscall.Statfs_t)) },
		faultfs.Create:   func() error { _, err := os.Create(filepath.Join(d.Dir(), "b")); return err },
		faultfs.Write:    func() error { _, err := f.WriteAt([]byte("x"), 0); return err },
		faultfs.Truncate: func() error { return f.Truncate(1) },
		faultfs.Sync:     f.Sync,
		faultfs.Unlink:   func() error { return os.Remove(path) },
		faultfs.Rename:   func() error { return os.Rename(path, path+"2") },
		faultfs.SyncDir: func() error {
			dir, err := os.Open(d.Dir())
			must(t, err)
			defer dir.Close()
			return dir.Sync()
		},
	}
	for kind, do := range ops {
		d.Inject(func(op faultfs.Op) (bad faultfs.Fault) {
			if op.Kind == kind {
				bad.Err = syscall.EIO
			}
			return bad
		})
		if err := do(); !errors.Is(err, syscall.EIO) {
			t.Errorf("%s: %v", kind, err)
		}
	}
	d.Inject(func(op faultfs.Op) faultfs.Fault { return faultfs.Fault{Short: 2} })
	if n, err := syscall.Pwrite(int(f.Fd()), []byte("ghijkl"), 0); n != 2 || err != nil {
		t.Errorf("a short write took %d bytes, %v", n, err)
	}
	d.Inject(func(op faultfs.Op) faultfs.Fault { return faultfs.Fault{Garbled: true} })
	if got, err := os.ReadFile(path); err != nil || string(got) != "\x98\x97\x9c\x9b\x9a\x99" {
		t.Errorf("garbled, it is %q, %v", got, err)
	}
	d.Inject(nil)
	if got, err := os.ReadFile(path); err != nil || string(got) != "ghcdef" {
		t.Errorf("left is %q, %v", got, err)
	}
}
