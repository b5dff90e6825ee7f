package bridge

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ipamd/ipamd/bridge/nspath"
	"github.com/ipamd/ipamd/internal/nstest"
	"github.com/ipamd/ipamd/internal/realtest"
)

// startInside starts a process that sleeps in a namespace, until the test ends. It may not have entered it yet.
func startInside(t *testing.T, ns *nstest.NS) *exec.Cmd {
	t.Helper()
	inside := exec.Command("ip", "netns", "exec", ns.Name(), "sleep", "600")
	inside.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := inside.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = inside.Process.Kill(); _ = inside.Wait() })
	return inside
}

// TestG13NetnsPathsThatAreNone: root opens nothing but network namespaces, and in
// their folders only.
func TestG13NetnsPathsThatAreNone(t *testing.T) {
	ns := nstest.New(t)
	ns.Bridge("rt0", "10.8.0.1/24")
	p := ns.Port("rt0")
	dir := t.TempDir()
	v := open(t, ns, func(c *Config) { c.NetnsFolders = []string{dir} })
	leads := func(path string) string { return "veth1 is a port of rt0 and leads into " + path }

	// Those that are named rightly.
	inside := startInside(t, p.NS)
	process := fmt.Sprintf("/proc/%d/ns/net", inside.Process.Pid)
	realtest.Eventually(t, time.Minute, "the process is inside", func() bool {
		id, err := v.NetnsID(context.Background(), process)
		own, _ := v.NetnsID(context.Background(), p.NS.Path())
		return err == nil && id == own
	})
	mount := filepath.Join(dir, "mount")
	if err := os.WriteFile(mount, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount(p.NS.Path(), mount, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(mount, unix.MNT_DETACH) })
	for _, path := range []string{p.NS.Path(), strings.Replace(p.NS.Path(), "/run/", "/var/run/", 1), mount, process} {
		if err := v.CheckNetns(context.Background(), path); err != nil {
			t.Error(err)
		}
		v.wantPlugged(path, "", path, leads(path))
	}

	// Those elsewhere are not looked at.
	for _, path := range []string{"/dev/null", "/run/netns", "/run/netns/../x", "/run/netns//x", "/run/netns/x/y", "/proc/self/ns/net", "/proc/1/ns/mnt",
		"/proc/1/ns/net/", "/proc/1/root/x", "/proc/x", "relative", dir + "/../x", "/var/run", "/"} {
		if err := v.CheckNetns(context.Background(), path); !errors.Is(err, nspath.ErrRefused) || !strings.Contains(err.Error(), dir) {
			t.Errorf("%s: %v", path, err)
		}
		if got, err := v.Plugged(context.Background(), "", time.Time{}, path, 0); !errors.Is(err, nspath.ErrRefused) {
			t.Errorf("%s: %q, %v", path, got, err)
		}
	}

	// What is no namespace is not opened: a fifo has no reader then.
	fifo := filepath.Join(dir, "fifo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	writers := make(chan error, 1)
	go func() {
		fd, err := unix.Open(fifo, unix.O_WRONLY, 0) // waits for a reader
		if err == nil {
			unix.Close(fd)
		}
		writers <- err
	}()
	v.wantPlugged("a fifo", "", fifo)
	select {
	case <-writers:
		t.Error("it was opened")
	default:
	}
	reader, err := os.OpenFile(fifo, os.O_RDONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	reader.Close()
	<-writers
	other := filepath.Join(dir, "mnt")
	if err := os.WriteFile(other, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("/proc/self/ns/uts", other, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(other, unix.MNT_DETACH) })
	v.wantPlugged("a namespace of another kind", "", other)
}

// TestG13SymbolicLinksToNetns: `ln -s /proc/PID/ns/net /run/netns/x` names a namespace as
// the path that it holds does. It leads nowhere once the process or the file is gone, and
// never beyond the folders.
func TestG13SymbolicLinksToNetns(t *testing.T) {
	ns := nstest.New(t)
	ns.Bridge("rt0", "10.8.0.1/24")
	p := ns.Port("rt0")
	dir := t.TempDir()
	v := open(t, ns, func(c *Config) { c.NetnsFolders = []string{dir} })
	inside := startInside(t, p.NS)
	process := fmt.Sprintf("/proc/%d/ns/net", inside.Process.Pid)
	realtest.Eventually(t, time.Minute, "the process is inside", func() bool {
		got, _ := v.Plugged(context.Background(), "", time.Time{}, process, 0)
		return len(got) == 1
	})
	link := func(name, target string) string {
		t.Helper()
		at := filepath.Join(dir, name)
		if err := os.Symlink(target, at); err != nil {
			t.Fatal(err)
		}
		return at
	}
	docker, named := link("docker", process), link("named", strings.Replace(p.NS.Path(), "/run/", "/var/run/", 1))
	relative, loop := link("relative", "docker"), link("loop", "loop")
	for _, path := range []string{docker, named, relative} {
		if err := v.CheckNetns(context.Background(), path); err != nil {
			t.Error(err)
		}
		v.wantPlugged(path, "", path, "veth1 is a port of rt0 and leads into "+path)
	}
	nowhere := []string{loop, link("dangling", "none"), filepath.Join(dir, strings.Repeat("x", 300))}
	for _, path := range nowhere {
		if err := v.CheckNetns(context.Background(), path); err != nil {
			t.Error(err)
		}
		v.wantPlugged(path, "", path)
	}
	device := link("device", "/dev/null")
	for _, path := range []string{device, link("other", "/proc/1/ns/mnt"), link("own", "/proc/self/ns/net"), link("up", "../x"), link("chain", "device")} {
		_, err := v.Plugged(context.Background(), "", time.Time{}, path, 0)
		for _, err := range []error{err, v.CheckNetns(context.Background(), path)} {
			if !errors.Is(err, nspath.ErrRefused) || !strings.Contains(err.Error(), path+" is a symbolic link, remove it") || !strings.Contains(err.Error(), "bridge.netns") {
				t.Errorf("%s: %v", path, err)
			}
		}
	}

	_ = inside.Process.Kill()
	_ = inside.Wait()
	v.wantPlugged("its process is gone", "", docker)
	v.wantPlugged("and a link to that", "", relative)
	p.NS.Delete()
	v.wantPlugged("its file is gone", "", named)
}
