// Package ctrdtest starts real containerds for tests, Debian's 1.6 and a 2.x,
// and runs real containers in them with runc.
//
// Each daemon has a root, a state folder and a socket of its own, so that
// several run side by side and beside the host's. What a test made goes away
// with the test: daemon, shims, containers, cgroups, folders.
//
// Containers need no image: their rootfs is a folder with a static busybox in
// it, shared read-only by all containers of a daemon.
package ctrdtest

import (
	"hash/crc32"
	"os"
	"path/filepath"
	"testing"

	"github.com/ipamd/ipamd/internal/realtest"
)

// A Version names a containerd that tests run against.
type Version string

const (
	// Debian is the containerd in PATH: 1.6 on Debian 12.
	Debian Version = "debian"
	// V2 is the containerd that scripts/containerd2 builds.
	V2 Version = "v2"
)

// Each runs f as a subtest against every version, each with a daemon of its
// own, beside one another: most of the time is waiting. The subtests have ended
// when the test that calls Each has; [testing.T.Run] around it waits for them.
func Each(t *testing.T, f func(t *testing.T, d *Daemon)) {
	for _, v := range []Version{Debian, V2} {
		t.Run(string(v), func(t *testing.T) {
			t.Parallel()
			f(t, Start(t, v))
		})
	}
}

// One runs f as a subtest against one version, which the test's name chooses, or
// against each where CONTAINERD=each. It is for what ipamd makes of what a containerd
// says, which is the same for all; what each says is tried by [Each], where it is read.
func One(t *testing.T, f func(t *testing.T, d *Daemon)) {
	if os.Getenv("CONTAINERD") == "each" {
		Each(t, f)
		return
	}
	v := []Version{Debian, V2}[crc32.ChecksumIEEE([]byte(t.Name()))%2]
	t.Run(string(v), func(t *testing.T) {
		t.Parallel()
		f(t, Start(t, v))
	})
}

// binary returns the daemon's program and the PATH to run it with: the shim
// is found in PATH, and a 2.x daemon with a 1.6 shim is a third thing.
func (v Version) binary(t testing.TB) (program, path string) {
	t.Helper()
	realtest.Root(t)
	realtest.Need(t, "runc", "busybox")
	if v == Debian {
		realtest.Need(t, "containerd", "containerd-shim-runc-v2")
		return "containerd", os.Getenv("PATH")
	}
	bin := filepath.Join(realtest.Checkout(t), ".cache", "containerd-2", "bin")
	realtest.Need(t, filepath.Join(bin, "containerd"), filepath.Join(bin, "containerd-shim-runc-v2"))
	return filepath.Join(bin, "containerd"), bin + ":" + os.Getenv("PATH")
}
