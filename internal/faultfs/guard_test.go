package faultfs_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ipamd/ipamd/internal/faultfs"
	"github.com/ipamd/ipamd/internal/realtest"
)

// holds says to a second process of these tests that it is there to be killed.
const holds = "FAULTFS_HOLDS_A_SYNC"

// A process that waits for an answer of its own disk is killed: it ends, and
// the disk goes with it.
func TestAKilledProcessLeavesNothing(t *testing.T) {
	if os.Getenv(holds) != "" {
		holdASync(t)
	}
	realtest.Root(t)
	victim := exec.Command(os.Args[0], "-test.run=^TestAKilledProcessLeavesNothing$", "-test.timeout=5m")
	temp := t.TempDir()
	victim.Env = append(os.Environ(), holds+"=1", "TMPDIR="+temp)
	out, err := victim.StdoutPipe()
	must(t, err, victim.Start())
	lines, waits := bufio.NewScanner(out), false
	for !waits && lines.Scan() {
		waits = lines.Text() == "the disk is to sync"
	}
	mounted := func() bool {
		mounts, err := os.ReadFile("/proc/self/mountinfo")
		must(t, err)
		return strings.Contains(string(mounts), temp)
	}
	if !waits || !mounted() {
		victim.Process.Kill()
		t.Fatalf("it does not wait for its disk: %v", lines.Err())
	}
	must(t, victim.Process.Kill())
	ended := make(chan error, 1)
	go func() { ended <- victim.Wait() }()
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Fatalf("process %d was killed and did not end", victim.Process.Pid)
	}
	realtest.Eventually(t, time.Minute, "the mount to be gone", func() bool { return !mounted() })
}

// holdASync never comes back.
func holdASync(t *testing.T) {
	d := faultfs.Mount(t, "mapped")
	f := create(t, d, "a")
	d.Inject(func(op faultfs.Op) (good faultfs.Fault) {
		if op.Kind == faultfs.Sync {
			fmt.Println("the disk is to sync")
			select {}
		}
		return good
	})
	t.Error(f.Sync())
}

// A mapped file is one for its process, fails as others do, and is no
// part of what a power loss leaves.
func TestAMappedFile(t *testing.T) {
	d := faultfs.Mount(t, "m")
	f := create(t, d, "m")
	must(t, f.Truncate(4096))
	page := mapped(t, f)
	copy(page, "one")
	got := make([]byte, 3)
	if _, err := f.ReadAt(got, 0); err != nil || string(got) != "one" {
		t.Errorf("written in memory, read %q, %v", got, err)
	}
	if st, err := os.Stat(filepath.Join(d.Dir(), "m")); err != nil || st.Size() != 4096 {
		t.Errorf("%v, %v", st, err)
	}
	again, err := os.OpenFile(filepath.Join(d.Dir(), "m"), os.O_RDWR, 0)
	must(t, err)
	defer again.Close()
	_, err = again.WriteAt([]byte("two"), 0)
	must(t, err)
	if string(page[:3]) != "two" {
		t.Errorf("written by another, in memory is %q", page[:3])
	}
	must(t, f.Sync(), os.Remove(filepath.Join(d.Dir(), "m")))
	syncDir(t, d)
	if got := at(d, d.Len(), nil); len(got) != 0 || d.Len() != 1 {
		t.Errorf("%d operations leave %q", d.Len(), got)
	}
}
