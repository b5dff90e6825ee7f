package idle

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/ipamd/ipamd/internal/broadcast"
	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/nft"
)

// Book is what is asked of the lease book; *netdb.Book is one.
type Book interface {
	Now() ipam.Stamp
	InState(s ipam.State) []*ipam.Lease
	Sleep(leaseID string) *ipam.Sleep
	NoteIdle(ctx context.Context, who ipam.Who, id string, rev int64, evidence json.RawMessage) (*ipam.Lease, error)
}

// Pauser pauses again what was paused before; *wake.Flights is one.
type Pauser interface {
	Repause(ctx context.Context, l *ipam.Lease, quiet func() error) error
}

// A Config has what a [Watcher] needs.
type Config struct {
	Book   Book
	Pauser Pauser
	Inside func(f func() error) error // calls f in the bridge's network namespace
	After  time.Duration              // without traffic, until a sandbox is idle
	Ignore []netip.Prefix             // whose packets count for nothing
	Log    *slog.Logger
}

// A Watcher reads when sandboxes had traffic, and says which are idle. It is safe for
// concurrent use.
type Watcher struct {
	cfg    Config
	conn   *nft.Conn
	watch  *nft.Watch
	again  broadcast.Signal // look again
	pauses errgroup.Group   // that are under way

	mu      sync.Mutex
	leased  map[netip.Prefix]bool    // of the table
	checked time.Time                // when the whole table was compared last
	suspect bool                     // the table is not as it was made: it is compared at the next look
	whole   time.Time                // since when it is as it was made: before that, traffic may have gone unseen
	last    map[netip.Addr]time.Time // of the last packet; of a delegated prefix by its first address
	noted   map[string]time.Time     // when a lease was noted to be idle, by its id
	pausing map[string]*repausing    // by uid
	idle    int
	looked  bool // Run has, once
}

// Open makes the table, or says what the kernel lacks for it. What the kernel knows of the
// time before stays.
func Open(ctx context.Context, cfg Config) (*Watcher, error) {
	if cfg.After <= 0 {
		return nil, errors.New("idle: After is not above 0")
	}
	w := &Watcher{cfg: cfg, last: make(map[netip.Addr]time.Time), noted: make(map[string]time.Time),
		pausing: make(map[string]*repausing)}
	w.pauses.SetLimit(mostPausing)
	err := cfg.Inside(func() (err error) {
		if w.conn, err = nft.Open(); err == nil {
			w.watch, err = nft.OpenWatch()
		}
		return err
	})
	if err == nil {
		err = w.sync(ctx)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("look at the traffic of sandboxes: %w", err), w.Close())
	}
	return w, nil
}

// Remove takes the table of a daemon before this one away, where there is one.
func Remove(ctx context.Context) (removed bool, err error) {
	return nft.RemoveTable(ctx, nft.Bridge, TableName)
}

// Close leaves the table: the kernel goes on to note what passes.
func (w *Watcher) Close() error {
	if w.watch != nil {
		_ = w.watch.Close() // the end of Run has closed it
		w.watch = nil
	}
	if w.conn == nil {
		return nil
	}
	err := w.conn.Close()
	w.conn = nil
	return err
}

// compareEvery is how often the whole table is compared, should the news of a change have been missed.
const compareEvery = 30 * time.Second

// sync has the table look at the leases that there are now.
func (w *Watcher) sync(ctx context.Context) error {
	want := make(map[netip.Prefix]bool)
	for _, s := range []ipam.State{ipam.Bound, ipam.Paused} {
		for _, l := range w.cfg.Book.InState(s) {
			want[l.Prefix()] = true
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	t := table(want, w.cfg.Ignore)
	if w.leased == nil || w.suspect || time.Since(w.checked) > compareEvery || !sameLengths(w.leased, want) {
		have, err := w.conn.Read(ctx, t)
		if err == nil {
			err = w.conn.Apply(ctx, have, t)
		}
		if err != nil {
			return err
		}
		now := time.Now()
		if w.suspect || have == nil {
			w.whole = now
		}
		w.leased, w.checked, w.suspect = want, now, false
		return nil
	}
	var edits []nft.Edit
	for _, f := range families {
		for _, bits := range f.lengths(want) {
			e := nft.Edit{Set: f.leased(bits), Del: f.without(bits, w.leased, want), Add: f.without(bits, want, w.leased)}
			if len(e.Del)+len(e.Add) > 0 {
				edits = append(edits, e)
			}
		}
	}
	if len(edits) == 0 {
		return nil
	}
	if err := w.conn.Edit(ctx, t, edits...); err != nil {
		w.suspect = true
		return err
	}
	w.leased = want
	return nil
}

// without are the elements for what is in all and not in but, of one length.
func (f familyOf) without(bits int, all, but map[netip.Prefix]bool) (out []nft.Element) {
	for p := range all {
		if f.has(p) && p.Bits() == bits && !but[p] {
			out = append(out, nft.Element{Key: nft.Key(p.Addr())})
		}
	}
	return out
}

func sameLengths(a, b map[netip.Prefix]bool) bool {
	return !slices.ContainsFunc(families, func(f familyOf) bool { return !slices.Equal(f.lengths(a), f.lengths(b)) })
}

// Read reads when each address had traffic last.
func (w *Watcher) Read() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, f := range families {
		left, err := w.conn.Left(&nft.Table{Family: nft.Bridge, Name: TableName}, f.seen())
		if err != nil {
			w.suspect = true
			return err
		}
		now := time.Now()
		for key, left := range left {
			if a, ok := netip.AddrFromSlice([]byte(key)); ok {
				w.last[a] = now.Add(left - life)
			}
		}
	}
	there := make(map[netip.Addr]bool, len(w.leased))
	for p := range w.leased {
		there[p.Addr()] = true
	}
	maps.DeleteFunc(w.last, func(a netip.Addr, _ time.Time) bool { return !there[a] })
	return nil
}

// LastTraffic is when a lease's sandbox last had traffic, as of the last reading; false when
// none is known since the lease began. The wall clock may have been set since then, so what has
// passed is compared: by it all traffic of a lease may be earlier than that.
func (w *Watcher) LastTraffic(l *ipam.Lease) (time.Time, bool) {
	if w == nil {
		return time.Time{}, false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	at, known := w.last[l.Addr]
	return at, known && time.Since(at) < w.cfg.Book.Now().Since(l.Created)
}

// Idle is how many bound leases had no traffic for as long as makes them idle.
func (w *Watcher) Idle() int {
	if w == nil {
		return 0
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.idle
}

// unseenUntil is until when traffic may have gone unseen, as the table was not there, or not whole.
func (w *Watcher) unseenUntil() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.whole
}

// quietFor is how long a lease's sandbox is known to have had no traffic: at most since it was bound,
// and since its traffic is seen.
func (w *Watcher) quietFor(l *ipam.Lease) time.Duration {
	d := w.cfg.Book.Now().Since(l.Since)
	if since := w.unseenUntil(); !since.IsZero() {
		d = min(d, time.Since(since))
	}
	if at, known := w.LastTraffic(l); known {
		d = min(d, time.Since(at))
	}
	return d
}

// Quiet is how long each bound lease's sandbox is known to have had no traffic, in no order.
func (w *Watcher) Quiet() []time.Duration {
	bound := w.cfg.Book.InState(ipam.Bound)
	out := make([]time.Duration, len(bound))
	for i, l := range bound {
		out[i] = w.quietFor(l)
	}
	return out
}

// The time between two readings: a share of the shortest time that is waited for, and no less
// and no more than this.
const (
	share    = 4
	leastGap = 100 * time.Millisecond
	mostGap  = 5 * time.Second
)

// Run reads, and notes what is idle, until ctx ends.
func (w *Watcher) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx) // the news must not wait for a look
	g.Go(func() error { return w.keep(ctx) })
	g.Go(func() error { return w.follow(ctx) })
	return g.Wait()
}

func (w *Watcher) keep(ctx context.Context) error {
	failed := false
	for {
		again := w.again.Next()
		next, err := w.look(ctx)
		if err != nil && ctx.Err() == nil && !failed {
			w.cfg.Log.Warn("the traffic of sandboxes cannot be read", "err", err)
		}
		failed = err != nil
		timer := time.NewTimer(next)
		select {
		case <-ctx.Done():
			timer.Stop()
			return w.pauses.Wait()
		case <-again:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// follow has the table made again that another program changed.
func (w *Watcher) follow(ctx context.Context) error {
	ours := nft.TableID(nft.Bridge, TableName)
	return w.watch.Run(ctx, func(n nft.News) {
		changed := n.Tables[ours] && !w.conn.Ours(n.Port)
		if changed {
			w.cfg.Log.Warn("another program changed the rules that look at the traffic of sandboxes",
				"table", ours, "program", n.Program, "thread", n.Process, "gone", n.Gone)
		}
		if !changed && !n.Lost {
			return
		}
		w.mu.Lock()
		w.suspect = w.suspect || changed
		w.checked = time.Time{}
		w.mu.Unlock()
		w.again.Send()
	})
}

// look takes one reading, does what follows from it, and returns how long the next may wait.
func (w *Watcher) look(ctx context.Context) (time.Duration, error) {
	shortest := w.cfg.After
	if err := errors.Join(w.sync(ctx), w.Read()); err != nil {
		return mostGap, err
	}
	bound := w.cfg.Book.InState(ipam.Bound)
	idle := 0
	there, sandboxes := make(map[string]bool, len(bound)), make(map[string][]*ipam.Lease, len(bound))
	for _, l := range bound {
		sandboxes[l.UID] = append(sandboxes[l.UID], l)
	}
	for _, l := range bound {
		there[l.ID] = true
		quiet := w.quietFor(l)
		if quiet >= w.cfg.After {
			idle++
		}
		if s := w.cfg.Book.Sleep(l.ID); s != nil && s.Do && s.Wake != nil && s.Wake.RepauseAfter > 0 {
			shortest = min(shortest, s.Wake.RepauseAfter)
			whole := quiet // of the sandbox: its tasks stand still for all of its addresses
			for _, other := range sandboxes[l.UID] {
				whole = min(whole, w.quietFor(other))
			}
			if whole >= s.Wake.RepauseAfter && w.repause(ctx, l, sandboxes[l.UID], whole) {
				continue
			}
		}
		w.note(ctx, l, quiet)
	}
	w.looked = true
	w.mu.Lock()
	w.idle = idle
	w.forget(sandboxes)
	maps.DeleteFunc(w.noted, func(id string, _ time.Time) bool { return !there[id] })
	w.mu.Unlock()
	return max(leastGap, min(shortest/share, mostGap)), nil
}

// reasonIdle is that of the change which says that a sandbox is idle.
const reasonIdle = "idle"

// note says once that a sandbox is idle, and again after it had traffic.
func (w *Watcher) note(ctx context.Context, l *ipam.Lease, quiet time.Duration) {
	noted, was := w.noted[l.ID]
	if quiet < w.cfg.After {
		delete(w.noted, l.ID)
		return
	}
	if !was && !w.looked && l.Reason == reasonIdle { // noted by a daemon before this one
		noted, was = time.Now().Add(-quiet), true
		w.noted[l.ID] = noted
	}
	if was && time.Since(noted) <= quiet+w.cfg.After {
		return
	}
	evidence, err := json.Marshal([]map[string]any{{"address": l.Addr, "witness": "traffic", "at": time.Now().Add(-quiet).UTC(), "port": l.HostInterface,
		"note": fmt.Sprintf("none for %v", quiet.Round(time.Millisecond))}})
	if err != nil {
		panic(err) // strings and times always marshal
	}
	who := ipam.Who{Actor: ipam.ByReconciler, Reason: reasonIdle}
	switch _, err := w.cfg.Book.NoteIdle(ctx, who, l.ID, l.Rev, evidence); {
	case err == nil:
		w.noted[l.ID] = time.Now()
	case !over(err) && ctx.Err() == nil:
		w.cfg.Log.Warn("that a sandbox is idle could not be recorded", "lease", l.ID, "addr", l.Addr, "err", err)
	}
}

// over reports that an error of a step means that others were faster.
func over(err error) bool {
	return slices.ContainsFunc([]error{ipam.ErrStale, ipam.ErrState, ipam.ErrGone, ipam.ErrClosed}, func(e error) bool { return errors.Is(err, e) })
}
