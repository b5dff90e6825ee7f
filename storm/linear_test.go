package storm_test

import (
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
	"github.com/ipamd/ipamd/internal/nstest"
	"github.com/ipamd/ipamd/netdb"
)

var linear = flag.Duration("storm.linear", 0, "how long TestL1Linearizable kills; 0: three quarters of -storm.for")

// The pool is smaller than what the callers ask for: each address is given
// again as soon as the rules allow.
var tightPrefix = netip.MustParsePrefix("10.8.0.0/26")

var tightRest = rest{cooldown: time.Second, least: 200 * time.Millisecond}

const tight = `
[book]
path = '%[1]s/book.db'
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
	callers int
	turns   int     // of each caller at the most
	names   int     // that callers share
	shared  float64 // of the turns, with such a name

	lister  sync.WaitGroup
	turned  atomic.Int64
	writing sync.Mutex
	calls   []call
}

func (t *trial) write(c call) {
	t.writing.Lock()
	defer t.writing.Unlock()
	t.calls = append(t.calls, c)
}

// TestL1Linearizable: 64 callers allocate and release, 1 000 times each if
// there is time, while ipamd is killed with -9 at random moments. Whatever the
// callers were answered, one order of one call after the other explains it.
func TestL1Linearizable(t *testing.T) {
	if *linear == 0 {
		*linear = *storms * 3 / 4
	}
	l := newTrial(t, &trial{callers: 64, turns: 1000, names: 16, shared: 0.25})
	l.begin()
	done := make(chan struct{})
	go func() { l.actors.Wait(); close(done) }()
	r := rand.New(rand.NewPCG(l.seed, 1))
	kills := 0
	for end := time.Now().Add(*linear); time.Now().Before(end) && l.ctx.Err() == nil && !closed(done); kills++ {
		l.world.rest(r, 100*time.Millisecond, 3*time.Second)
		if err := l.daemon.kill(); err != nil {
			l.rec.strange("%v", err)
		}
		if err := l.daemon.start(); err != nil {
			t.Fatal(err)
		}
	}
	l.judge()
	t.Logf("%d kills", kills)
}

// TestL6Linearizable: about 1 000 pairs of allocate and release on 50 names,
// with random delays. Who releases what another counts on is no fault of
// ipamd's; it ends consistent, and starts again.
func TestL6Linearizable(t *testing.T) {
	l := newTrial(t, &trial{callers: 64, turns: 16, names: 50, shared: 1})
	l.begin()
	l.actors.Wait()
	l.judge()
}

// newTrial starts ipamd in a world with rt0 and nothing else.
func newTrial(t *testing.T, l *trial) *trial {
	t.Helper()
	if *seed == 0 {
		*seed = rand.Uint64N(1e9) + 1
	}
	l.seed = *seed
	t.Logf("-storm.seed=%d", l.seed)
	programs := build(t)
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
	l.ns.Bridge("rt0", netip.PrefixFrom(netdb.FirstHost(tightPrefix), tightPrefix.Bits()).String())
	config := fmt.Appendf(nil, tight, dir, tightPrefix, tightRest.cooldown, tightRest.least)
	if err := os.WriteFile(filepath.Join(dir, "ipamd.toml"), config, 0o600); err != nil {
		t.Fatal(err)
	}
	l.daemon = &daemon{program: filepath.Join(programs, "ipamd"), dir: dir, netns: l.ns.Path()}
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
	ctx, cancel := context.WithTimeout(context.Background(), *linear+2*patience)
	l.ctx = ctx
	t.Cleanup(func() {
		cancel()
		l.actors.Wait()
		l.lister.Wait()
	})
	return l
}

func (l *trial) begin() {
	for n := range l.callers {
		l.actors.Go(func() {
			(&caller{trial: l, id: n, r: rand.New(rand.NewPCG(l.seed, uint64(n)+2))}).run()
		})
	}
	l.lister.Go(func() { l.list(rand.New(rand.NewPCG(l.seed, 0))) })
}

// judge ends the trial, kills once more, lists what the book has then, and
// looks for faults.
func (l *trial) judge() {
	t := l.t
	t.Helper()
	close(l.calm)
	l.actors.Wait()
	l.lister.Wait()
	if err := l.daemon.kill(); err != nil {
		t.Error(err)
	}
	if err := l.daemon.start(); err != nil {
		t.Fatal(err)
	}
	l.listOnce(rand.New(rand.NewPCG(l.seed, 0)))
	l.eventually("ipamd is ready", func() bool { _, err := l.client.Ready(l.ctx); return err == nil })
	if err := l.daemon.stop(); err != nil {
		t.Error(err)
	}
	for _, odd := range l.rec.h.odd {
		t.Errorf("odd: %s", odd)
	}
	if l.turned.Load() == 0 {
		t.Fatal("nobody was given an address")
	}
	began := time.Now()
	faults := blame(l.calls, tightRest)
	illegal, unknown := crooked(l.calls, tightRest, patience)
	for _, key := range unknown {
		t.Errorf("%s: not judged within %v", key, patience)
	}
	for _, key := range illegal {
		faults = append(faults, "not linearizable: "+key)
	}
	for _, c := range l.calls {
		if c.Verb == allocating && c.Answered != never && !c.Existing {
			l.rec.h.grants = append(l.rec.h.grants, grant{asked: c.Asked, answered: c.Answered, addr: c.Addr, lease: c.Lease, uid: c.UID, early: c.Early})
		}
	}
	faults = append(faults, judgeBook(&l.rec.h, l.readBook())...)
	if len(faults) > 0 {
		t.Errorf("%d faults:\n%s", len(faults), report(kinds(faults)))
	}
	if len(faults)+len(unknown) > 0 {
		where, err := evidence("", l.seed, l.calls, tightRest, append(illegal, unknown...))
		if err == nil { // with the book, whose history says by whom each lease ended
			err = os.Rename(filepath.Join(l.dir, "book.db"), filepath.Join(where, "book.db"))
		}
		t.Errorf("-storm.seed=%d; the history and its drawing are in %s, %v", l.seed, where, err)
	}
	lost := 0
	for _, c := range l.calls {
		if c.Answered == never {
			lost++
		}
	}
	t.Logf("%d turns, %d calls, %d of them without an answer, judged in %v\n%s",
		l.turned.Load(), len(l.calls), lost, time.Since(began).Round(time.Millisecond), l.rec.counts())
}
