package watchdog

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/netdb"
	. "github.com/ipamd/ipamd/netdb/netdbtest"
)

var (
	ctx       = context.Background()
	client    = Who(ipam.ByClient, "released")
	errBroken = errors.New("rtnetlink is closed")
)

// newWatchdog stands on a real book and a board on which both witnesses have
// reported nothing. It does not run, and there is neither runtime nor bridge.
func newWatchdog(t *testing.T, change ...func(*Config)) (*Watchdog, *netdb.Book, *census.Board) {
	t.Helper()
	book, board := Open(t), census.NewBoard(census.Netns, census.Runtime)
	board.Replace(census.Netns, nil, nil)
	board.Replace(census.Runtime, nil, nil)
	cfg := Config{
		Book: book, Board: board, Kernel: noPorts{}, PortsChanged: func() <-chan struct{} { return nil },
		Settle:       func(context.Context, ...netip.Addr) error { return nil },
		ReleasingMax: time.Hour, Timeout: time.Minute, Parallel: 4,
		Now: ipam.Now,
	}
	for _, c := range change {
		c(&cfg)
	}
	w, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return w, book, board
}

// noPorts is a host without a bridge.
type noPorts struct{}

func (noPorts) Plugged(context.Context, string, time.Time, string, uint64) ([]census.Plugged, error) {
	return nil, nil
}
func (noPorts) Remains(context.Context, census.LastKnown, func(netip.Addr) bool) (r census.Remains, err error) {
	return r, nil
}
func (noPorts) Beside(context.Context, census.Sought) (map[netip.Addr]string, error) { return nil, nil }
func (noPorts) Moved(context.Context, int, string) (string, error)                   { return "", nil }
func (noPorts) Forget(context.Context, ...netip.Prefix) error                        { return nil }
func (noPorts) PortNames() map[string]bool                                           { return nil }
func (noPorts) SeenWithin(netip.Prefix, time.Duration) bool                          { return false }

// usedPorts have had every address recently.
type usedPorts struct{ noPorts }

func (usedPorts) SeenWithin(netip.Prefix, time.Duration) bool { return true }

// stubbornPorts forget nothing.
type stubbornPorts struct{ noPorts }

func (stubbornPorts) Forget(context.Context, ...netip.Prefix) error { return errBroken }

// What keeps an address, a row for each reason.
func TestBlockers(t *testing.T) {
	two := netip.MustParseAddr("10.8.64.2")
	for name, tt := range map[string]struct {
		lease  ipam.Lease
		report func(*census.Board)
		kinds  []string
		says   string // somewhere in the first
	}{
		"nothing is known": {ipam.Lease{State: ipam.Releasing}, nil, []string{"unconfirmed"}, "still to come"},
		"its containers": {ipam.Lease{State: ipam.Releasing, Containers: []ipam.Container{{Namespace: "default", ID: "c1"}, {Namespace: "default", ID: "c2"}}},
			nil, []string{"container", "container"}, "default/c1"},
		"its port and its namespace": {ipam.Lease{State: ipam.Releasing, HostInterface: "veth1", Netns: "/run/netns/a"},
			nil, []string{"port", "port"}, "veth1"},
		"a witness sees it": {ipam.Lease{State: ipam.Releasing}, func(b *census.Board) {
			b.ReplaceScope(census.Netns, "s", []census.Sighting{{Addr: two, Netns: census.NewNetnsID(7, ""), Port: "veth1"}})
		}, []string{"sighting"}, "netns witness sees 10.8.64.2 in nsid:7 behind port veth1"},
		"a witness cannot answer": {ipam.Lease{State: ipam.Releasing}, func(b *census.Board) { b.Silence(census.Runtime, errBroken) },
			[]string{"silent"}, errBroken.Error()},
		"seen, and a witness cannot answer": {ipam.Lease{State: ipam.Releasing}, func(b *census.Board) {
			b.ReplaceScope(census.Netns, "s", []census.Sighting{{Addr: two}})
			b.Silence(census.Netns, errBroken)
		}, []string{"sighting", "silent"}, "netns"},
		"it cools, whatever it names":    {ipam.Lease{State: ipam.Cooling, HostInterface: "veth1"}, nil, nil, ""},
		"it is free":                     {ipam.Lease{State: ipam.Free, HostInterface: "veth1"}, nil, nil, ""},
		"a state of the future blocks":   {ipam.Lease{State: "dreaming"}, nil, []string{"unconfirmed"}, ""},
		"a container without a name too": {ipam.Lease{State: ipam.Releasing, Containers: []ipam.Container{{}}}, nil, []string{"container"}, "not confirmed"},
	} {
		t.Run(name, func(t *testing.T) {
			w, _, board := newWatchdog(t)
			if tt.report != nil {
				tt.report(board)
			}
			tt.lease.Addr = two
			var kinds []string
			got := w.Blockers(&tt.lease)
			for _, b := range got {
				kinds = append(kinds, b.Kind)
			}
			if !slices.Equal(kinds, tt.kinds) {
				t.Fatalf("blocked by %+v, want %v", got, tt.kinds)
			}
			if len(got) > 0 && !strings.Contains(got[0].Detail, tt.says) {
				t.Errorf("the first says %q, want %q in it", got[0].Detail, tt.says)
			}
		})
	}
}

// A lease goes free at once only when it was never bound and every witness
// answers not to see it. Everything else is releasing, with a reason.
func TestReleaseFreesOnlyWhatIsCertain(t *testing.T) {
	for name, tt := range map[string]struct {
		bind   bool
		report func(*Watchdog, *census.Board, *ipam.Lease)
		want   ipam.State
		by     string
	}{
		"never bound, unseen": {false, nil, ipam.Free, ""},
		"bound, unseen":       {true, nil, ipam.Releasing, "port"},
		"never bound, seen": {false, func(_ *Watchdog, b *census.Board, l *ipam.Lease) {
			b.ReplaceScope(census.Netns, "s", []census.Sighting{{Addr: l.Addr, Port: "veth1"}})
		}, ipam.Releasing, "sighting"},
		"never bound, the kernel is silent":  {false, func(_ *Watchdog, b *census.Board, _ *ipam.Lease) { b.Silence(census.Netns, errBroken) }, ipam.Releasing, "silent"},
		"never bound, the runtime is silent": {false, func(_ *Watchdog, b *census.Board, _ *ipam.Lease) { b.Silence(census.Runtime, errBroken) }, ipam.Releasing, "silent"},
		"never bound, news cannot be read": {false, func(w *Watchdog, _ *census.Board, _ *ipam.Lease) {
			w.cfg.Settle = func(context.Context, ...netip.Addr) error { return errBroken }
		}, ipam.Releasing, "unconfirmed"},
		"never bound, and it was on the wire": {false, func(w *Watchdog, _ *census.Board, _ *ipam.Lease) { w.cfg.Kernel = usedPorts{} }, ipam.Releasing, "unconfirmed"},
		"never bound, and the kernel keeps its entries": {false, func(w *Watchdog, _ *census.Board, _ *ipam.Lease) { w.cfg.Kernel = stubbornPorts{} },
			ipam.Releasing, "unconfirmed"},
		"never bound, a container without an address carries its owner's name": {false, func(_ *Watchdog, b *census.Board, l *ipam.Lease) {
			b.ReplaceScope(census.Runtime, "default/c1", []census.Sighting{{Namespace: "default", Container: "c1", Sandbox: l.Sandbox}})
		}, ipam.Releasing, "unconfirmed"},
		"never bound, a container without an address carries its id": {false, func(_ *Watchdog, b *census.Board, l *ipam.Lease) {
			b.ReplaceScope(census.Runtime, "default/c1", []census.Sighting{{Namespace: "default", Container: "c1", LeaseID: l.ID}})
		}, ipam.Releasing, "unconfirmed"},
	} {
		t.Run(name, func(t *testing.T) {
			scene := func() (*Watchdog, *netdb.Book, *ipam.Lease) {
				w, book, board := newWatchdog(t)
				l := Reserve(t, book, "a")
				if tt.bind {
					if _, err := book.Bind(ctx, client, l.ID, 0, ipam.Binding{HostInterface: "veth1"}); err != nil {
						t.Fatal(err)
					}
				}
				if tt.report != nil {
					tt.report(w, board, l)
				}
				return w, book, l
			}
			w, book, l := scene()
			began := time.Now()
			got, blockers, err := w.Release(ctx, client, l.ID, "a", 0)
			// A machine that stands still for as long as an answer waits gets
			// another answer than the one that this is about.
			for tt.want == ipam.Free && err == nil && got.State == ipam.Releasing && time.Since(began) >= releaseAsk {
				w, book, l = scene()
				began = time.Now()
				got, blockers, err = w.Release(ctx, client, l.ID, "a", 0)
			}
			if err != nil || got.State != tt.want {
				t.Fatalf("released to %+v, %v, want %s", got, err, tt.want)
			}
			if tt.by == "" && len(blockers) != 0 || tt.by != "" && (len(blockers) == 0 || blockers[0].Kind != tt.by) {
				t.Errorf("blocked by %+v, want %q", blockers, tt.by)
			}
			if _, row := book.At(l.Addr); row != (tt.want != ipam.Free) {
				t.Errorf("a row is there: %v", row)
			}
			if again, _, err := w.Release(ctx, client, l.ID, "", 0); err != nil || again.State != tt.want {
				t.Errorf("released again: %+v, %v", again, err)
			}
		})
	}
}

// Bad input is refused with its reason and lets nothing go.
func TestBadReleases(t *testing.T) {
	w, book, _ := newWatchdog(t)
	l := Reserve(t, book, "a")
	rev := book.Rev()
	if _, _, err := w.Release(ctx, client, l.ID, "another incarnation", 0); !errors.Is(err, ipam.ErrInvalid) {
		t.Errorf("another uid: %v", err)
	}
	for _, id := range []string{"", "10.8.64.2", "a", "01a1fdb6-0028-705b-b6df-000000000000"} {
		if _, _, err := w.Release(ctx, client, id, "", 0); !errors.Is(err, ipam.ErrNotFound) {
			t.Errorf("release %q: %v", id, err)
		}
	}
	ended, cancel := context.WithCancel(ctx)
	cancel()
	if _, _, err := w.Release(ended, client, l.ID, "", 0); !errors.Is(err, context.Canceled) {
		t.Errorf("a call that ended: %v", err)
	}
	if got, _ := book.At(l.Addr); book.Rev() != rev || got.State != ipam.Reserved {
		t.Errorf("it is %s at revision %d, was %d", got.State, book.Rev(), rev)
	}
}
