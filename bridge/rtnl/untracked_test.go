package rtnl

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ipamd/ipamd/internal/realtest"
)

// A kernel that has no connection tracking refuses to open the socket, or to
// answer on it, and neither is an error. Ours has it, so it is asked for a
// protocol and for a subsystem that no kernel has.
func TestKernelWithoutConnectionTracking(t *testing.T) {
	t.Parallel()
	realtest.Root(t)
	const unknown = 0xfe
	if k, err := Dial(unix.NETLINK_SMC + 1); !IsUntracked(err) {
		if err == nil {
			k.Close()
		}
		t.Errorf("open: %v", err)
	}
	k, err := Dial(unix.NETLINK_NETFILTER)
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	if err := k.change(unknown<<8, 0, make([]byte, sizeofNfgenmsg)); !IsUntracked(err) {
		t.Errorf("ask: %v", err)
	}
	if _, err := k.CountConnections(); err != nil {
		t.Errorf("the one that is there: %v", err)
	}
}
