package storm_test

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ipamd/ipamd/client"
	"github.com/ipamd/ipamd/internal/faultfs"
	"github.com/ipamd/ipamd/internal/nstest"
	"github.com/ipamd/ipamd/internal/realtest"
	"github.com/ipamd/ipamd/ipam"
)

var linear = flag.Duration("storm.linear", 8*time.Second, "how long TestL1Linearizable and TestL6Linearizable kill; 0: as long as -storm.for")

// killing is for how long ipamd is killed again and again.
func killing() time.Duration { return cmp.Or(*linear, *storms) }

// The pool is smaller than what the callers ask for: each address is given
// again as soon as the rules allow.
var tightPrefix = netip.MustParsePrefix("10.8.0.0/26")

// poolSize is how many addresses it gives: all but the network's, the gateway's and
// the broadcast's.
var poolSize = 1<<(32-tightPrefix.Bits()) - 3

var tightRest = rest{cooldown: time.Second, least: 200 * time.Millisecond}

const tight = `
[book]
path = '%[5]s'
changes_kept = 1000000
[socket]
path = '%[1]s/sock'
group = ''
[[pool]]
name = 'default'
prefix = '%[2]s'
[allocation]
cooldown = '%[3]s'
cooldown_min = '%[4]s'
[runtime]
kind = 'none'
[log]
format = 'text'
`

// A trial is a history in the making.
type trial struct {
	*world
	seed    uint64
	disk    string // the folder of the book; "": beside the rest
	callers int
	cycles  int           // of each caller at the most
	names   int           // that callers share
	shared  float64       // of the turns, with such a name
	stay    time.Duration // a lease is held for so long at the most
	ebb     int           // so many callers go on at ebb; 0: there is none
	faults  bool          // ipamd meets more than kills: see fault
	floods  bool          // a flooder is behind a port
	floors  tally         // below this it was no trial

	giveUp  context.CancelFunc // ends all
	lister  sync.WaitGroup
	turned  atomic.Int64
	deaths  []moment                   // when each of ipamd's ends was seen
	aways   []away                     // when its files were not in their places
	behind  moment                     // until when its uptime may be behind what it was
	anew    []moment                   // the starts behind which an address may rest anew
	aimed   atomic.Pointer[os.Process] // to be killed by who is answered next
	writing sync.Mutex
	calls   []call
}

func (t *trial) write(c call) {
	t.writing.Lock()
	defer t.writing.Unlock()
	t.calls = append(t.calls, c)
}

// TestL1Linearizable: 64 callers allocate and release, 1 000 times each if
// there is time, while ipamd is killed with -9 at random moments, its files are
// moved away and back, others are started on its book, its uptime is stepped, and
// new neighbours flood the bridge. Whatever the callers were answered, one order of
// one call after the other explains it.
func TestL1Linearizable(t *testing.T) {
	draw()
	t.Parallel()
	a := tally{kills: 10, aimed: 3, lost: 100, lists: 30, cycles: 500, early: 50, cooled: 10, roomy: 50,
		away: 5, readonly: 100, seconds: 2, stepped: 3, floods: 6}
	l := newTrial(t, &trial{callers: 64, cycles: 1000, names: 16, shared: 0.25, stay: 20 * time.Millisecond, ebb: 2, faults: true, floods: true, floors: a.in(killing())})
	l.begin()
	l.killFor(killing(), 100*time.Millisecond, 3*time.Second)
	l.judge()
}

// TestL6Linearizable: 1 000 pairs of allocate and release on 50 names, with
// random delays, under kill -9, and anew until the time is over; the last
// thousand is let end. Who releases what another counts on is no fault of
// ipamd's; it ends consistent, and starts again.
func TestL6Linearizable(t *testing.T) {
	draw()
	t.Parallel()
	a := tally{kills: 12, aimed: 3, lost: 20, lists: 20, cycles: 1000, roomy: 50, away: 6, readonly: 20, seconds: 3, stepped: 6}
	l := newTrial(t, &trial{callers: 64, cycles: 16, names: 50, shared: 1, stay: 300 * time.Millisecond, faults: true, floors: a.in(killing())})
	thousands := 0
	over := make(chan struct{})
	l.actors.Go(func() { thousands = l.callAnew(over) })
	l.observe()
	l.killFor(killing(), 100*time.Millisecond, time.Second)
	close(over)
	l.actors.Wait()
	if n := l.turned.Load(); n < 1000*int64(thousands) {
		t.Errorf("%d pairs, want %d times a thousand", n, thousands)
	}
	t.Logf("a thousand pairs, %d times", thousands)
	l.judge()
}

// TestL1AnswersWaitForASlowDisk: each commit takes a disk of its own a while,
// and who is answered kills ipamd at once. What it said has to be true.
func TestL1AnswersWaitForASlowDisk(t *testing.T) {
	draw()
	disk := faultfs.Mount(t, "book.db-shm")
	slow(disk, 20*time.Millisecond)
	l := newTrial(t, &trial{disk: disk.Dir(), callers: 64, cycles: 1000, names: 16, shared: 0.25, stay: 20 * time.Millisecond,
		floors: tally{kills: 3, aimed: 1, lost: 5, lists: 3, cycles: 20}})
	l.begin()
	l.killFor(5*time.Second, 100*time.Millisecond, time.Second)
	l.judge()
	t.Logf("%d operations of the disk", disk.Len())
}

// slow delays the first of a commit's writes. ipamd that answers before it has
// written may be killed in between: on a quick disk that is some 100 µs.
func slow(disk *faultfs.Disk, by time.Duration) {
	begun := false
	disk.Inject(func(op faultfs.Op) faultfs.Fault {
		switch {
		case op.Kind == faultfs.Sync:
			begun = false
		case op.Kind == faultfs.Write && op.Name == "book.db-wal" && !begun:
			begun = true
			<-time.After(by)
		}
		return faultfs.Fault{}
	})
}

// newTrial starts ipamd in a world with rt0 and nothing else.
func newTrial(t *testing.T, l *trial) *trial {
	t.Helper()
	l.seed = *seed
	t.Logf("-storm.seed=%d", l.seed)
	needs(t)
	program := realtest.Program(t, "cmd/ipamd")
	// Not t.TempDir: a socket's path ends at 107 bytes.
	dir, err := os.MkdirTemp("", "linear-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	l.world = &world{t: t, dir: dir, ns: nstest.New(t), rec: newRecorder(tightRest.cooldown, tightRest.least),
		calm: make(chan struct{}), client: &client.Client{Socket: filepath.Join(dir, "sock")}}
	l.ns.Bridge("rt0", netip.PrefixFrom(ipam.FirstHost(tightPrefix), tightPrefix.Bits()).String())
	if l.floods {
		l.beFlooded()
	}
	if l.disk == "" {
		l.disk = filepath.Join(dir, "state")
		if err := os.Mkdir(l.disk, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	book := filepath.Join(l.disk, "book.db")
	config := fmt.Appendf(nil, tight, dir, tightPrefix, tightRest.cooldown, tightRest.least, book)
	if err := os.WriteFile(filepath.Join(dir, "ipamd.toml"), config, 0o600); err != nil {
		t.Fatal(err)
	}
	l.daemon = &daemon{program: program, dir: dir, book: book, netns: l.ns.Path()}
	if err := l.daemon.start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if !l.daemon.over() {
			_ = l.daemon.kill()
		}
		l.client.CloseIdleConnections()
		if t.Failed() {
			l.tellLog()
		}
	})
	ctx, cancel := context.WithTimeout(context.Background(), killing()+4*patience)
	l.ctx, l.giveUp = ctx, cancel
	t.Cleanup(func() {
		cancel()
		l.actors.Wait()
		l.lister.Wait()
	})
	return l
}

func (l *trial) begin() {
	l.call(&l.actors, 0)
	l.observe()
}

// call has each caller take its turns, once. Each round draws anew.
func (l *trial) call(all *sync.WaitGroup, round int) {
	for n := range l.callers {
		all.Go(func() {
			(&caller{trial: l, id: n, r: rand.New(rand.NewPCG(l.seed, uint64(round)<<32+uint64(n)+2))}).run()
		})
	}
}

// callAnew has all callers begin again once each is done, until it is over, and
// returns how often they began. It waits for them.
func (l *trial) callAnew(over chan struct{}) (rounds int) {
	for ; !closed(over) && l.ctx.Err() == nil; rounds++ {
		var all sync.WaitGroup
		l.call(&all, rounds)
		all.Wait()
	}
	return rounds
}

func (l *trial) observe() {
	l.lister.Go(func() { l.list(rand.New(rand.NewPCG(l.seed, 0))) })
	if l.floods {
		l.lister.Go(func() { (&flooder{world: l.world, r: rand.New(rand.NewPCG(l.seed, 2))}).act() })
	}
}

// beFlooded makes what a flooder needs.
func (l *trial) beFlooded() {
	l.t.Helper()
	rt0, err := l.ns.Netlink().LinkByName("rt0")
	if err != nil {
		l.t.Fatal(err)
	}
	l.world.bridge, l.hands, l.spaces = rt0.Attrs().Index, make(chan struct{}, 1), newSpaces(l.t, filepath.Join(l.dir, "netns"))
}
