package plumb

import (
	"bytes"
	"errors"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// M1, for a virtual machine: its tap is made whole or not at all, also when the process that makes it
// is killed after any of its steps; the same again finds it, also while the machine has it open, and
// what the machine sends by it reaches the bridge. Only its owner may touch it.
func TestM1ATap(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.spec.Tap, w.spec.Netns, w.spec.MAC = true, "", nil
	for n := 1; ; n++ {
		if w.killed(t, n) {
			if at := links(t, w.host); n < 6 || len(at) != 1 { // the last step makes it last
				t.Errorf("of %d steps, left are %v", n, at)
			}
			break
		}
		if at := links(t, w.host); n < 6 && len(at) > 0 || n > 9 {
			t.Fatalf("step %d: left %v", n, at)
		}
	}
	p, err := w.make(t, w.spec)
	if err != nil || p.Made || p.Host != w.spec.Host || !bytes.Equal(p.MAC, AddressMAC(netip.MustParseAddr("10.8.64.7"))) {
		t.Errorf("it is there: %+v, %v", p, err)
	}
	w.whole(t)

	machine := -1
	w.host.Do(func() {
		if machine, err = unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC, 0); err != nil {
			return
		}
		var ask *unix.Ifreq
		if ask, err = unix.NewIfreq(w.spec.Host); err == nil {
			ask.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI)
			err = unix.IoctlIfreq(machine, unix.TUNSETIFF, ask)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(machine)
	if p, err := w.make(t, w.spec); err != nil || p.Made {
		t.Errorf("while the machine runs: %+v, %v", p, err)
	}
	who := append([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, p.MAC...)
	who = append(who, 0x08, 0x06, 0, 1, 8, 0, 6, 4, 0, 1)
	who = append(append(who, p.MAC...), 10, 8, 64, 7, 0, 0, 0, 0, 0, 0, 10, 8, 64, 1)
	if err := unix.SetNonblock(machine, true); err != nil {
		t.Fatal(err)
	}
	answered, frame := false, make([]byte, 1600)
	for end := time.Now().Add(20 * time.Second); !answered && time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if _, err := unix.Write(machine, who); err != nil {
			t.Fatal(err)
		}
		for !answered {
			n, err := unix.Read(machine, frame)
			if err != nil {
				break
			}
			answered = n >= 42 && bytes.Equal(frame[12:14], []byte{8, 6}) && frame[21] == 2 && bytes.Equal(frame[28:32], []byte{10, 8, 64, 1})
		}
	}
	if !answered {
		t.Error("what the machine sends does not reach the bridge")
	}

	other := w.spec
	other.Owner = "lease-2"
	if _, err := w.make(t, other); !errors.Is(err, ErrTaken) {
		t.Errorf("another owner's: %v", err)
	}
	pair := specOf(w.guest.Path())
	if _, err := w.make(t, pair); !errors.Is(err, ErrTaken) {
		t.Errorf("a pair in its place: %v", err)
	}
	if at := links(t, w.guest); len(at) > 0 {
		t.Errorf("a pair in its place: left %v", at)
	}
	w.remove(t)
	w.remove(t)
	if at := links(t, w.host); len(at) > 0 {
		t.Errorf("removed: left %v", at)
	}
	if _, err := w.make(t, pair); err != nil {
		t.Fatal(err)
	}
	if _, err := w.make(t, w.spec); !errors.Is(err, ErrTaken) {
		t.Errorf("in a pair's place: %v", err)
	}
}
