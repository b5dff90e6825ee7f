package bridge

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ipamd/ipamd/bridge/rtnl"
	"github.com/ipamd/ipamd/internal/nstest"
	"github.com/ipamd/ipamd/internal/realtest"
)

// A kernel that does not answer keeps no bind: which link a name is, is then not
// known, and is again once it answers.
func TestG4PlugOfWaitsForNothing(t *testing.T) {
	t.Parallel()
	ns := nstest.New(t)
	ns.Bridge("rt0", "10.8.0.1/24")
	v := open(t, ns)
	before, _, err := v.PlugOf(t.Context(), "rt0", "")
	if before == 0 {
		t.Fatal("the bridge itself is not found:", err)
	}
	for _, none := range []string{"veth99", "a name that no link can have"} {
		if index, inode, err := v.PlugOf(t.Context(), none, "/run/netns/no-such-thing"); index != 0 || inode != 0 || err != nil {
			t.Errorf("%s is not there, and is %d, %d, %v", none, index, inode, err)
		}
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	answer := sync.OnceValue(func() error { return unix.Close(pair[1]) }) // that nothing more comes
	defer func() { _ = answer() }()
	dial, asked := v.plugs.Dial, false // under the socket's lock
	err = v.plugs.Ask(t.Context(), func(*rtnl.Socket) error {
		v.plugs.Dial = func(ctx context.Context) (*rtnl.Socket, error) {
			if asked {
				return dial(ctx)
			}
			asked = true
			return rtnl.Over(pair[0]), nil
		}
		return errors.New("so that the next one dials")
	})
	if err == nil {
		t.Fatal("the socket stays")
	}
	type found struct {
		index int
		err   error
	}
	answered := make(chan found, 3)
	go func() {
		for range 2 { // the second waits for the first
			index, _, err := v.PlugOf(context.WithoutCancel(t.Context()), "rt0", "")
			answered <- found{index, err}
		}
		given, cancel := context.WithCancel(t.Context())
		cancel()
		index, _, err := v.PlugOf(given, "rt0", "")
		answered <- found{index, err}
	}()
	late := time.After(rtnl.ReplyTimeout * time.Second)
	for range 3 {
		select {
		case it := <-answered:
			if it.index != 0 || it.err == nil {
				t.Errorf("no answer came, and it is %d, %v", it.index, it.err)
			}
		case <-late:
			t.Fatal("a bind waits for a kernel that does not answer")
		}
	}
	if err := answer(); err != nil {
		t.Fatal(err)
	}
	realtest.Eventually(t, wait, "the kernel to answer again", func() bool {
		now, _, err := v.PlugOf(t.Context(), "rt0", "")
		return now == before && err == nil
	})
}
