package rtnl

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"
)

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
			h := Header{Type: c.typ, flags: unix.NLM_F_MULTI, seq: 7}
			if c.mark {
				h.flags |= unix.NLM_F_DUMP_INTR
			}
			a.take(h, make([]byte, 4))
			a.take(Header{Type: unix.NLMSG_DONE, flags: unix.NLM_F_MULTI, seq: 7}, make([]byte, 4))
			if errors.Is(a.outcome(), ErrInterrupted) != c.mark || !a.done || a.err != nil {
				t.Errorf("%+v comes to %v", a, a.outcome())
			}
		})
	}
	tries := 0
	if err := Steady(func() error { tries++; return ErrInterrupted }); !errors.Is(err, ErrInterrupted) || tries != 10 {
		t.Errorf("gave up after %d tries with %v", tries, err)
	}
	tries = 0
	if err := Steady(func() error {
		if tries++; tries < 3 {
			return ErrInterrupted
		}
		return nil
	}); err != nil || tries != 3 {
		t.Errorf("after %d tries: %v", tries, err)
	}
}

func TestAnswersOfOtherQuestionsAreIgnored(t *testing.T) {
	a := answer{seq: 7}
	a.take(Header{Type: unix.NLMSG_ERROR, seq: 6}, []byte{0xff, 0xff, 0xff, 0xff})
	if a.done || a.err != nil {
		t.Errorf("%+v", a)
	}
	a.take(Header{Type: unix.NLMSG_ERROR, seq: 7}, []byte{0xed, 0xff, 0xff, 0xff}) // -19
	if !a.done || !IsGone(a.err) {
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
			t.Fatalf("no question for a %s", name)
		}
		for what, output := range map[string][]byte{
			"done":        datagram(Header{Type: unix.NLMSG_ERROR, seq: 1}, make([]byte, 4)),
			"cut short":   datagram(Header{Type: unix.NLMSG_ERROR, seq: 1}, make([]byte, 3)),
			"a dump's":    datagram(Header{Type: unix.NLMSG_DONE, seq: 1}, make([]byte, 4)),
			"nothing yet": nil,
		} {
			ours, theirs := pair(t, unix.SOCK_SEQPACKET)
			if output == nil {
				if err := unix.Shutdown(theirs, unix.SHUT_WR); err != nil {
					t.Fatal(err)
				}
			} else if _, err := unix.Write(theirs, output); err != nil {
				t.Fatal(err)
			}
			if err := ask(&Socket{fd: ours, buf: make([]byte, 1<<10)}); err == nil || IsGone(err) {
				t.Errorf("%s, %s: %v", name, what, err)
			}
		}
	}
}
