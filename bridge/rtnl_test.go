package bridge

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ipamd/ipamd/internal/nstest"
	"github.com/ipamd/ipamd/internal/realtest"
)

// A list that changed while it was made is either complete as to what stood
// all the time, or says that it was interrupted; and the ports that stood stay
// seen whatever comes and goes beside them.
func TestInterruptedListIsNeverShort(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		realtest.Lack(t, "-short: it makes 150 namespaces")
	}
	ns := nstest.New(t)
	ns.Bridge("rt0", "10.8.0.1/24")
	const standing = 150 // more than fit into one datagram
	for i := range standing {
		ns.Port("rt0", fmt.Sprintf("10.8.0.%d/24", 2+i))
	}
	v := open(t, ns)
	var kernel *rtnl
	var err error
	ns.Do(func() { kernel, err = dial(unix.NETLINK_ROUTE) })
	if err != nil {
		t.Fatal(err)
	}
	defer kernel.close()

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
		err := kernel.portsOf(v.link.index, func(l *link) {
			if l.kind == "veth" {
				n++
			}
		})
		switch {
		case errors.Is(err, errInterrupted):
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
					t.Fatalf("%s went dark", addr)
				}
			}
			v.noneSilent()
		}
	}
	t.Logf("%d lists were interrupted, %d were whole", interrupted, whole)
}

// The mark of an interruption counts wherever it is, above all on the closing
// message.
func TestInterruptionIsNoticed(t *testing.T) {
	for _, c := range []struct {
		name string
		typ  uint16
		mark bool
	}{
		{"on an entry", unix.RTM_NEWADDR, true},
		{"on the closing message", unix.NLMSG_DONE, true},
		{"nowhere", unix.NLMSG_DONE, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := answer{seq: 7}
			h := header{typ: c.typ, flags: unix.NLM_F_MULTI, seq: 7}
			if c.mark {
				h.flags |= unix.NLM_F_DUMP_INTR
			}
			a.take(h, make([]byte, 4))
			a.take(header{typ: unix.NLMSG_DONE, flags: unix.NLM_F_MULTI, seq: 7}, make([]byte, 4))
			if errors.Is(a.outcome(), errInterrupted) != c.mark || !a.done || a.err != nil {
				t.Errorf("%+v comes to %v", a, a.outcome())
			}
		})
	}
	tries := 0
	if err := steady(func() error { tries++; return errInterrupted }); !errors.Is(err, errInterrupted) || tries != 10 {
		t.Errorf("gave up after %d tries with %v", tries, err)
	}
	tries = 0
	if err := steady(func() error {
		if tries++; tries < 3 {
			return errInterrupted
		}
		return nil
	}); err != nil || tries != 3 {
		t.Errorf("after %d tries: %v", tries, err)
	}
}

func TestAnswersOfOtherQuestionsAreIgnored(t *testing.T) {
	a := answer{seq: 7}
	a.take(header{typ: unix.NLMSG_ERROR, seq: 6}, []byte{0xff, 0xff, 0xff, 0xff})
	if a.done || a.err != nil {
		t.Errorf("%+v", a)
	}
	a.take(header{typ: unix.NLMSG_ERROR, seq: 7}, []byte{0xed, 0xff, 0xff, 0xff}) // -19
	if !a.done || !isGone(a.err) {
		t.Errorf("%+v", a)
	}
}

// What netlink ends without the object that was asked for, or in a way that
// cannot be read, is an error: taken for an object it would be an empty one.
func TestAnswersWithoutTheirObject(t *testing.T) {
	questions := asking(0)
	for _, name := range []string{"link", "far-link", "neighbour", "forwarding", "netns-id"} {
		ask := questions[name]
		if ask == nil {
			t.Fatalf("nobody asks for a %s", name)
		}
		for what, said := range map[string][]byte{
			"done":        datagram(header{typ: unix.NLMSG_ERROR, seq: 1}, make([]byte, 4)),
			"cut short":   datagram(header{typ: unix.NLMSG_ERROR, seq: 1}, make([]byte, 3)),
			"a dump's":    datagram(header{typ: unix.NLMSG_DONE, seq: 1}, make([]byte, 4)),
			"nothing yet": nil,
		} {
			ours, theirs := pair(t, unix.SOCK_SEQPACKET)
			if said == nil {
				if err := unix.Shutdown(theirs, unix.SHUT_WR); err != nil {
					t.Fatal(err)
				}
			} else if _, err := unix.Write(theirs, said); err != nil {
				t.Fatal(err)
			}
			if err := ask(&rtnl{fd: ours, buf: make([]byte, 1<<10)}); err == nil || isGone(err) {
				t.Errorf("%s, %s: %v", name, what, err)
			}
		}
	}
}

// News of a namespace's end that cannot be read is lost news.
func TestUnreadableEndIsLostNews(t *testing.T) {
	var b Bridge
	b.hearEnd([]byte{0, 0, 0})
	if !b.lost {
		t.Error("it was passed over")
	}
}
