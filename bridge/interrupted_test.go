package bridge

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ipamd/ipamd/bridge/rtnl"
	"github.com/ipamd/ipamd/internal/nstest"
	"github.com/ipamd/ipamd/internal/realtest"
)

// A list that changed while it was made is either complete as to what stood
// all the time, or says that it was interrupted; and the ports that stood stay
// seen whatever comes and goes beside them.
func TestInterruptedListIsNeverShort(t *testing.T) {
	t.Parallel()
	realtest.Long(t)
	ns := nstest.New(t)
	ns.Bridge("rt0", "10.8.0.1/24")
	const standing = 150 // more than fit into one datagram
	for i := range standing {
		ns.Port("rt0", fmt.Sprintf("10.8.0.%d/24", 2+i))
	}
	v := open(t, ns)
	var kernel *rtnl.Socket
	var err error
	ns.Do(func() { kernel, err = rtnl.Dial(unix.NETLINK_ROUTE) })
	if err != nil {
		t.Fatal(err)
	}
	defer kernel.Close()

	ctx, cancel := context.WithCancel(context.Background())
	var churn sync.WaitGroup
	defer churn.Wait()
	defer cancel()
	churn.Go(func() {
		for ctx.Err() == nil {
			ns.Exec("sh", "-c", "for i in 1 2 3 4 5; do ip tuntap add dev churn$i mode tap; ip link set churn$i master rt0; done; for i in 1 2 3 4 5; do ip link del churn$i; done")
		}
	})
	var interrupted, whole int
	for interrupted+whole < 3000 && interrupted < 20 {
		n := 0
		err := kernel.PortsOf(v.device.link.Index, func(l *rtnl.Link) {
			if l.Kind == "veth" {
				n++
			}
		})
		switch {
		case errors.Is(err, rtnl.ErrInterrupted):
			interrupted++
		case err != nil:
			t.Fatal(err)
		case n != standing:
			t.Fatalf("a list of %d ports passed for whole", n)
		default:
			whole++
		}
		if (interrupted+whole)%50 == 0 {
			if err := v.Refresh(ctx); err != nil {
				t.Fatal(err)
			}
			for i := range standing {
				if addr := fmt.Sprintf("10.8.0.%d", 2+i); !v.seen(addr) {
					t.Fatalf("%s is not seen", addr)
				}
			}
			v.noneSilent()
		}
	}
	t.Logf("%d lists were interrupted, %d were whole", interrupted, whole)
}

// News of a namespace's end that cannot be read is lost news.
func TestUnreadableEndIsLostNews(t *testing.T) {
	var b Bridge
	b.receive(rtnl.NoNetns, rtnl.Header{Type: unix.RTM_DELNSID}, []byte{0, 0, 0, 0, 2, 0, 0, 0})
	if !b.lost {
		t.Error("it was passed over")
	}
}
