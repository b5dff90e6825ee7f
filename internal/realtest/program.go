package realtest

import (
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
)

// Checkout is the root of the source that a test belongs to.
func Checkout(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		up := filepath.Dir(dir)
		if up == dir {
			t.Fatal("no go.mod above the test's folder")
		}
		dir = up
	}
}

// Program builds a command of the module ("cmd/ipamd") as it is shipped, and returns its
// path. All tests of all packages share the file, which go links again only where the
// source has changed; one builds at a time, and each test binary asks go once. It is not to
// be written to.
func Program(t testing.TB, command string) string {
	t.Helper()
	Need(t, "go")
	programs.Lock()
	defer programs.Unlock()
	path, ok := programs.built[command]
	if !ok {
		path = build(t, command)
		programs.built[command] = path
	}
	return path
}

// programs are those that this test binary has built.
var programs = struct {
	sync.Mutex
	built map[string]string
}{built: make(map[string]string)}

func build(t testing.TB, command string) string {
	t.Helper()
	root := Checkout(t)
	dir := filepath.Join(root, ".cache", "programs")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	for err = syscall.EINTR; err == syscall.EINTR; {
		err = syscall.Flock(int(lock.Fd()), syscall.LOCK_EX)
	}
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(dir, filepath.Base(command))
	cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w", "-o", program, "./"+command)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "PWD="+root)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v\n%s", command, err, out)
	}
	return program
}
