package soak_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/client"
	"github.com/ipamd/ipamd/internal/realtest"
)

var soaks = flag.Duration("soak.for", shortest, "how long the load lasts, at least")

const (
	shortest = 5 * time.Second // that a load lasts
	workers  = 64
	idle     = 1000
	rest     = 20 * time.Millisecond // of a worker between two sandboxes
	// refusals is the largest share of calls that may be refused for now.
	refusals = 0.001
)

// TestSoak: what a steady load leaves behind is nothing.
func TestSoak(t *testing.T) {
	realtest.Long(t)
	d := start(t, 2*idle)
	w := &work{client: d.client, began: time.Now()}
	w.sandbox(t, 0, 0) // opens what the first call of each verb opens
	d.client.CloseIdleConnections()
	before := d.atRest()
	t.Logf("at rest: %v", before)

	idlers := newCrowd(t, d, idle)
	idlers.answered()
	stop := w.many(t)
	realtest.Eventually(t, patience, "all that there is once is made", func() bool { return w.count("release") >= leftEnough/4 })
	stop()
	h := heaps{first: w.settled(t, d)}
	w.began, w.took = time.Now(), make(map[int][]time.Duration)
	stop = w.many(t)
	samples := watch(t, d, w, max(*soaks, shortest))
	lasted := time.Since(w.began)
	stop()
	if all := w.count(); all == 0 {
		t.Fatal("no call was answered")
	}
	w.refusedLittle(t)
	flat(t, samples)
	h.last = w.settled(t, d)
	leaves(t, h)
	held := 0 // samples in which the idle ones were there: after two minutes ipamd closes them, and they come again
	for _, s := range samples {
		if s.files >= idle {
			held++
		}
	}
	if held < len(samples)/2 {
		t.Errorf("in %d of %d samples %d connections were idle", held, len(samples), idle)
	}

	idlers.leave()
	d.client.CloseIdleConnections()
	var after sample
	defer func() {
		if t.Failed() {
			t.Logf("at rest again: %v, with the files\n%s", after, d.files())
		}
	}()
	realtest.Eventually(t, patience, "ipamd has released what the clients used", func() bool {
		after = d.sample()
		return after.files <= before.files && after.goroutines <= before.goroutines
	})
	t.Logf("at rest again: %v", after)
	share := max(*soaks/10, 5*time.Second)
	first, last := w.within(99, 0, share), w.within(99, lasted-share, lasted)
	t.Logf("%d calls; p99 of the first %v %v, of the last %v: ratio %.2f (wanted: at most 1.5)",
		w.count(), share, first, last, float64(last)/float64(first))
}

// watch samples each second, or twenty times, for so long, or until the sandboxes are many enough
// to show a leak by, and prints how it goes. Where they do not become it, it ends after patience more.
func watch(t *testing.T, d *daemon, w *work, long time.Duration) (samples []sample) {
	tick := time.NewTicker(min(time.Second, long/20))
	defer tick.Stop()
	for began := time.Now(); ; <-tick.C {
		lasted := time.Since(began)
		if lasted > long+patience || lasted > long && len(samples) > 0 && samples[len(samples)-1].sandboxes-samples[0].sandboxes >= leftEnough {
			return samples
		}
		s := d.sample()
		s.sandboxes = w.count("release")
		samples = append(samples, s)
		if n := len(samples); n%10 == 0 {
			t.Logf("%4.0fs: %v, %d sandboxes", lasted.Seconds(), s, s.sandboxes)
		}
	}
}

// warm is how long caches fill, in samples: a minute, or half of a short soak.
func warm(samples int) int { return min(60, samples/2) }

// flat holds the medians of the last two fifths, after the warm-up, against the first
// one's: garbage comes and goes.
func flat(t *testing.T, samples []sample) {
	samples = samples[warm(len(samples)):]
	var medians []int
	for part := range slices.Chunk(samples, max(len(samples)/5, 1)) {
		if len(part) < len(samples)/5 {
			break // the rest of the division
		}
		var resident []int
		for _, s := range part {
			resident = append(resident, s.resident)
		}
		slices.Sort(resident)
		medians = append(medians, resident[len(resident)/2])
	}
	grown := func(m int) bool { return float64(m) > 1.1*float64(medians[0]) }
	if n := len(medians); n > 1 && grown(medians[n-1]) && grown(medians[n-2]) {
		t.Errorf("resident memory grows by more than a tenth: %v", mebibytes(medians))
		return
	}
	t.Logf("resident memory, medians of fifths: %v", mebibytes(medians))
}

// A sandbox may leave leftMost bytes of the heap behind, and all of them
// leftFloor: by so much what a collection leaves differs without any. Of fewer
// sandboxes than leftEnough it differs by more than a leak.
const (
	leftMost   = 70
	leftFloor  = 256 << 10
	leftEnough = 8000
)

// heaps are two samples with the least that collections left beside a single caller: after the
// warm-up, and at the end. What one leaves depends on what was under way; the least of several
// does so the least.
type heaps struct{ first, last sample }

// many starts the workers, and returns what stops them and waits for them.
func (w *work) many(t *testing.T) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	for n := range workers {
		w.all.Go(func() { w.work(ctx, t, n+1) })
	}
	return func() { cancel(); w.all.Wait() }
}

// settled is the least that collections leave while one caller alone has them come: of many
// callers some megabytes are under way.
func (w *work) settled(t *testing.T, d *daemon) (least sample) {
	const looks = 250 // some collections come meanwhile
	for n := range looks {
		w.sandbox(t, 0, n+1)
		if s := d.sample(); least.heap == 0 || s.heap < least.heap {
			least = s
		}
	}
	least.sandboxes = w.count("release")
	return least
}

// made is how many sandboxes lived in between.
func (h heaps) made() int { return h.last.sandboxes - h.first.sandboxes }

// leaves holds the heap at the end of a soak against the heap after the warm-up,
// by the sandboxes in between: a map that forgets no lease is far too small for
// resident memory to show within a minute.
func leaves(t *testing.T, h heaps) {
	made, grew := h.made(), h.last.heap-h.first.heap
	if made < leftEnough {
		t.Fatalf("%d sandboxes are too few to see a leak by, of which %d are needed", made, leftEnough)
	}
	t.Logf("heap after a collection: %v, %d sandboxes later: %.1f bytes each",
		mebibytes([]int{h.first.heap, h.last.heap}), made, float64(grew)/float64(made))
	if grew > leftMost*made+leftFloor {
		t.Errorf("a sandbox leaves %d bytes of the heap behind, want at most %d", grew/made, leftMost)
	}
}

func mebibytes(all []int) (out []string) {
	for _, n := range all {
		out = append(out, fmt.Sprintf("%.1f MiB", float64(n)/(1<<20)))
	}
	return out
}

func (s sample) String() string {
	return fmt.Sprintf("%.1f MiB (heap %.1f), %d files, %d goroutines", float64(s.resident)/(1<<20), float64(s.heap)/(1<<20), s.files, s.goroutines)
}

// atRest is the most that a daemon holds while it is asked for nothing: its
// own loops come and go.
func (d *daemon) atRest() (most sample) {
	d.t.Helper()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for range 30 {
		<-tick.C
		s := d.sample()
		most.resident = max(most.resident, s.resident)
		most.files = max(most.files, s.files)
		most.goroutines = max(most.goroutines, s.goroutines)
	}
	return most
}

// A work is what the workers do, and how long it took.
type work struct {
	client *client.Client
	began  time.Time
	all    sync.WaitGroup

	mu      sync.Mutex
	took    map[int][]time.Duration // by the second in which the call began
	calls   map[string]int
	refused map[api.Code]int
}

func (w *work) work(ctx context.Context, t *testing.T, worker int) {
	tick := time.NewTicker(rest)
	defer tick.Stop()
	for n := 0; ; n++ {
		w.sandbox(t, worker, n)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// sandbox lives one life. One in four is bound, paused, resumed, and released
// with its removal confirmed; the others are released before they began.
func (w *work) sandbox(t *testing.T, worker, n int) {
	name := fmt.Sprintf("s%d-%d", worker, n)
	var id string
	w.call(t, "allocate", func(ctx context.Context) error {
		reply, err := w.client.Allocate(ctx, api.AllocateRequest{Sandbox: name})
		if err == nil {
			id = reply.Leases[0].ID
		}
		return err
	})
	if id == "" {
		return
	}
	ask := api.ReleaseRequest{}
	if n%4 == 0 {
		ask.Wait = "10s"
		w.call(t, "bind", func(ctx context.Context) error {
			_, err := w.client.Bind(ctx, id, api.BindRequest{Netns: "/run/netns/" + name, HostInterface: "v" + name})
			return err
		})
		w.call(t, "pause", func(ctx context.Context) error { _, err := w.client.Pause(ctx, id, api.PauseRequest{}); return err })
		w.call(t, "resume", func(ctx context.Context) error { _, err := w.client.Resume(ctx, id, api.PauseRequest{}); return err })
	}
	w.call(t, "release", func(ctx context.Context) error { _, err := w.client.Release(ctx, id, ask); return err })
}

// call makes one and books it. What may succeed later is not made again here:
// it is counted.
func (w *work) call(t *testing.T, what string, ask func(context.Context) error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	began := time.Now()
	err := ask(ctx)
	took := time.Since(began)
	w.mu.Lock()
	defer w.mu.Unlock()
	if message := new(api.Error); errors.As(err, &message) && message.Retryable {
		if w.refused == nil {
			w.refused = make(map[api.Code]int)
		}
		w.refused[message.Code]++
		return
	} else if err != nil {
		t.Errorf("%s: %v", what, err)
		return
	}
	if w.took == nil {
		w.took, w.calls = make(map[int][]time.Duration), make(map[string]int)
	}
	second := int(began.Sub(w.began) / time.Second)
	w.took[second] = append(w.took[second], took)
	w.calls[what]++
}

// count is how many calls were answered, of these verbs or of all.
func (w *work) count(verbs ...string) (sum int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for verb, n := range w.calls {
		if len(verbs) == 0 || slices.Contains(verbs, verb) {
			sum += n
		}
	}
	return sum
}

// refusedLittle fails when more than a small share of the calls was refused, or
// any for a reason that this load gives no cause for: the pool is large and all
// is ready.
func (w *work) refusedLittle(t *testing.T) {
	t.Helper()
	all := w.count()
	w.mu.Lock()
	defer w.mu.Unlock()
	sum := 0
	for code, n := range w.refused {
		sum += n
		switch code {
		case api.PoolExhausted, api.NotReady, api.BridgeNotReady, api.EvidenceUnavailable, api.BookReadonly:
			t.Errorf("%d calls were refused as %s", n, code)
		}
	}
	t.Logf("refused, to be tried again: %d of %d: %v", sum, all+sum, w.refused)
	if most := refusals * float64(all+sum); float64(sum) > most {
		t.Errorf("%d calls were refused, want at most %.0f of %d", sum, most, all+sum)
	}
}

// within is the time in which so many in a hundred of the calls were answered
// that began between two times.
func (w *work) within(percent int, from, to time.Duration) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	var all []time.Duration
	for second := int(from / time.Second); second < int(to/time.Second); second++ {
		all = append(all, w.took[second]...)
	}
	if len(all) == 0 {
		return 0
	}
	slices.Sort(all)
	return all[len(all)*percent/100].Round(10 * time.Microsecond)
}
