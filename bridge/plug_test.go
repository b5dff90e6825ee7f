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
	before, _ := v.PlugOf(t.Context(), "rt0", "")
	if before == 0 {
		t.Fatal("the bridge itself is not found")
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
	answered := make(chan int, 3)
	go func() {
		for range 2 { // the second waits for the first
			index, _ := v.PlugOf(context.WithoutCancel(t.Context()), "rt0", "")
			answered <- index
		}
		given, cancel := context.WithCancel(t.Context())
		cancel()
		index, _ := v.PlugOf(given, "rt0", "")
		answered <- index
	}()
	late := time.After(rtnl.ReplyTimeout * time.Second)
	for range 3 {
		select {
		case index := <-answered:
			if index != 0 {
				t.Errorf("no answer came, and it is %d", index)
			}
		case <-late:
			t.Fatal("a bind waits for a kernel that does not answer")
		}
	}
	if err := answer(); err != nil {
		t.Fatal(err)
	}
	realtest.Eventually(t, wait, "the kernel to answer again", func() bool {
		now, _ := v.PlugOf(t.Context(), "rt0", "")
		return now == before
	})
}
