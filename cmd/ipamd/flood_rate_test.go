package main

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/client"
	"github.com/ipamd/ipamd/internal/nstest"
	"github.com/ipamd/ipamd/internal/realtest"
)

const (
	floodRounds = 6                      // of a flood and its control
	floodRound  = 400 * time.Millisecond // as long as one allocates
	floodMost   = 50                     // allocations for each turn: the pool has room for all
	floodPause  = 2 * time.Millisecond   // between two of them
)

// A guest behind a port sends answers for every address of a pool as fast as
// the machine takes them, from one MAC or from ever new ones: the quarantine's
// share holds, its port is named, and a pool beside it on the bridge gives; in a
// build without the race detector, which cannot follow 300 000 frames a second, as
// quickly as beside the same flood to a MAC that no port has, alternately.
func TestFloodAtFullRate(t *testing.T) {
	prefixes := [2]string{"10.8.64.0/26", "10.8.68.0/22"}
	for _, tt := range []struct {
		name string
		fill func([]byte, uint64)
	}{{"one MAC", nil}, {"ever new MACs", fromNewMAC}} {
		t.Run(tt.name, func(t *testing.T) {
			w := newFlooded(t, prefixes)
			before, _ := w.resident("flooded")
			port := w.knownPort()
			rt0, err := w.ns.Netlink().LinkByName("rt0")
			if err != nil {
				t.Fatal(err)
			}
			absent := net.HardwareAddr{0x02, 0xdd, 0, 0, 0, 1}
			flood := newFlood(t, port, rt0.Attrs().HardwareAddr, netip.MustParsePrefix(prefixes[0]), tt.fill)
			control := newFlood(t, port, absent, netip.MustParsePrefix(prefixes[0]), tt.fill)

			stop := flood.start()
			w.allClaimed(before)
			w.allPlaced(before)
			for _, sandbox := range []string{"f1", "f2", "f3"} {
				w.refused("flooded", sandbox)
			}
			stop()
			w.holds(0, map[api.State]int{api.Quarantined: floodShare, api.Bound: 1, api.Reserved: 0})
			w.stays(before)
			w.namesThePort(port)

			var without, with pace
			for range cycles() {
				w.beside(control, &without)
				w.beside(flood, &with)
			}
			limit := 2*without.median() + 5*time.Millisecond
			t.Logf("beside the control %v; beside the flood %v; its median may be %v", &without, &with, limit)
			if with.median() > limit && *alone {
				t.Error("a pool that is not claimed gives more slowly for a flood of another one")
			}
			w.holds(1, map[api.State]int{api.Quarantined: 0})
		})
	}
}

// fromNewMAC makes an ARP frame one of an unknown sender.
func fromNewMAC(frame []byte, n uint64) {
	mac := binary.BigEndian.AppendUint64(nil, 0x02ee<<32|n)[2:]
	copy(frame[6:], mac)
	copy(frame[22:], mac)
}

// A pace is how long allocations took, and what was sent beside them.
type pace struct {
	took  []time.Duration
	sent  int64 // frames
	lasts time.Duration
}

func (p *pace) median() time.Duration { return slices.Sorted(slices.Values(p.took))[len(p.took)/2] }

func (p *pace) String() string {
	return fmt.Sprintf("%d took %v, at most %v, at %.0f frames/s", len(p.took), p.median(), slices.Max(p.took), float64(p.sent)/p.lasts.Seconds())
}

// beside allocates for a turn from the pool that is not claimed.
func (w *world) beside(f *flood, p *pace) {
	w.t.Helper()
	stop := f.start()
	defer stop()
	sent, began := f.sent.Load(), time.Now()
	for n := 0; n < 2 || n < floodMost && time.Since(began) < floodRound; n++ {
		asked := time.Now()
		r, err := w.ask("beside", "beside "+asked.String())
		if err != nil || len(r.Skipped) != 0 {
			w.t.Fatalf("the pool beside: %+v, %v", r, err)
		}
		p.took = append(p.took, time.Since(asked))
		<-time.After(floodPause)
	}
	p.sent += f.sent.Load() - sent
	p.lasts += time.Since(began)
}

// allPlaced waits until all that comes after a lease in its pool is seen with a
// port.
func (w *world) allPlaced(after api.Lease) {
	w.t.Helper()
	first := netip.MustParseAddr(after.Address)
	prefix := netip.PrefixFrom(first, after.PrefixLen).Masked()
	for a := first.Next(); prefix.Contains(a.Next()); a = a.Next() {
		realtest.Eventually(w.t, wait, "the port behind which "+a.String()+" is claimed", func() bool {
			seen := w.program.board.About(a).Seen
			return len(seen) > 0 && seen[0].Port != ""
		})
	}
}

// namesThePort fails unless all that is quarantined is for what came by a port.
func (w *world) namesThePort(port *nstest.Port) {
	w.t.Helper()
	list, err := w.client.Leases(ctx, client.LeaseFilter{State: string(api.Quarantined)})
	if err != nil {
		w.t.Fatal(err)
	}
	for _, l := range list.Leases {
		if !slices.ContainsFunc(l.Evidence, func(s api.Sighting) bool { return s.Port == port.HostName }) {
			w.t.Errorf("%s was quarantined for %+v, and the flooder is behind %s", l.Address, l.Evidence, port.HostName)
		}
	}
}

// A flood sends ARP replies for every address of a prefix to one MAC, as fast
// as they go, from behind a port.
type flood struct {
	t     *testing.T
	fd    int
	batch []mmsg
	parts []unix.Iovec
	bytes [][]byte
	fill  func(frame []byte, n uint64) // makes the nth frame; nil keeps all as they are
	last  uint64

	sent atomic.Int64
}

// An mmsg is struct mmsghdr of sendmmsg(2).
type mmsg struct {
	unix.Msghdr
	sent uint32
	_    [4]byte
}

const floodBatch = 256 // frames for each system call

func newFlood(t *testing.T, port *nstest.Port, to net.HardwareAddr, prefix netip.Prefix, fill func([]byte, uint64)) *flood {
	t.Helper()
	eth0, err := port.NS.Netlink().LinkByName("eth0")
	if err != nil {
		t.Fatal(err)
	}
	f := &flood{t: t, fill: fill, batch: make([]mmsg, floodBatch), parts: make([]unix.Iovec, floodBatch)}
	port.NS.Do(func() { f.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(f.fd) })
	if err := unix.Bind(f.fd, &unix.SockaddrLinklayer{Ifindex: eth0.Attrs().Index}); err != nil {
		t.Fatal(err)
	}
	a := prefix.Addr()
	f.frames(func() []byte {
		if a = a.Next(); !prefix.Contains(a) {
			a = prefix.Addr()
		}
		frame := append(append([]byte{}, to...), port.MAC...)
		frame = binary.BigEndian.AppendUint16(frame, unix.ETH_P_ARP)
		frame = append(frame, 0, 1, 8, 0, 6, 4, 0, 2)
		frame = append(append(frame, port.MAC...), a.AsSlice()...)
		return append(append(frame, to...), a.AsSlice()...)
	})
	return f
}

// frames has it send others.
func (f *flood) frames(next func() []byte) {
	f.bytes = nil
	for i := range f.batch {
		frame := next()
		f.bytes = append(f.bytes, frame)
		f.parts[i].Base = &frame[0]
		f.parts[i].SetLen(len(frame))
		f.batch[i].Iov = &f.parts[i]
		f.batch[i].SetIovlen(1)
	}
}

// start sends until it is stopped, which may be twice.
func (f *flood) start() (stop func()) {
	var running sync.WaitGroup
	end := make(chan struct{})
	running.Go(func() {
		for {
			select {
			case <-end:
				return
			default:
				f.send()
			}
		}
	})
	stop = sync.OnceFunc(func() {
		close(end)
		running.Wait()
	})
	f.t.Cleanup(stop)
	begun := f.sent.Load()
	realtest.Eventually(f.t, wait, "the flood", func() bool { return f.sent.Load() > begun+4*floodBatch })
	return stop
}

// send sends one batch. What cannot be sent is so many claims less.
func (f *flood) send() {
	if f.fill != nil {
		for _, frame := range f.bytes {
			f.last++
			f.fill(frame, f.last)
		}
	}
	n, _, errno := unix.Syscall6(unix.SYS_SENDMMSG, uintptr(f.fd), uintptr(unsafe.Pointer(&f.batch[0])), floodBatch, 0, 0, 0)
	if errno == 0 {
		f.sent.Add(int64(n))
	}
}
