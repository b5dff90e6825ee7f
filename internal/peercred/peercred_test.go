package peercred

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

func TestBothEnds(t *testing.T) {
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	dialled, err := net.Dial("unix", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer dialled.Close()
	accepted, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer accepted.Close()
	for _, c := range []*net.UnixConn{dialled.(*net.UnixConn), accepted.(*net.UnixConn)} {
		if is, err := Of(c); err != nil || int(is.Pid) != os.Getpid() || int(is.Uid) != os.Geteuid() || int(is.Gid) != os.Getegid() {
			t.Errorf("the other end is %+v, %v", is, err)
		}
	}
	groups, err := Groups(accepted.(*net.UnixConn))
	if err != nil {
		t.Fatal(err)
	}
	own, err := os.Getgroups()
	if err != nil {
		t.Fatal(err)
	}
	if len(groups) != len(own) || slices.ContainsFunc(own, func(g int) bool { return !slices.Contains(groups, uint32(g)) }) {
		t.Errorf("it has the groups %v, want %v", groups, own)
	}
	fd, err := PIDFD(accepted.(*net.UnixConn))
	if errors.Is(err, unix.ENOPROTOOPT) {
		return // Linux before 6.5
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Close(fd); err != nil {
		t.Error(err)
	}
}

func TestAClosedConnection(t *testing.T) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pair[0])
	if is, err := OfFD(pair[0]); err != nil || int(is.Pid) != os.Getpid() {
		t.Errorf("the other end of a pair is %+v, %v", is, err)
	}
	f := os.NewFile(uintptr(pair[1]), "pair")
	c, err := net.FileConn(f)
	_ = f.Close()
	if err != nil {
		t.Fatal(err)
	}
	_ = c.Close()
	u := c.(*net.UnixConn)
	if is, err := Of(u); err == nil || is != nil {
		t.Errorf("it is %+v", is)
	}
	if is, err := Groups(u); err == nil || is != nil {
		t.Errorf("it has the groups %v", is)
	}
	if fd, err := PIDFD(u); err == nil || fd != -1 {
		t.Errorf("it is held by %d", fd)
	}
}
