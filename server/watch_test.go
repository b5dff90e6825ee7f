package server_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/client"
	"github.com/ipamd/ipamd/internal/realtest"
	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/netdb"
	"github.com/ipamd/ipamd/netdb/netdbtest"
	"github.com/ipamd/ipamd/routes"
	"github.com/ipamd/ipamd/server"
	"github.com/ipamd/ipamd/server/servertest"
	"github.com/ipamd/ipamd/server/socket"
)

// browser is a client of HTTP, with a connection for each call.
func browser(socket string) *http.Client {
	return &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}}
}

// stream opens a watch by hand.
func stream(t *testing.T, socket, query string) *http.Response {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	t.Cleanup(cancel)
	req, err := http.NewRequestWithContext(ctx, "GET", "http://ipamd/v1/watch?"+query, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := browser(socket).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	return resp
}

// line reads one event.
func line(t *testing.T, from *bufio.Reader) api.Event {
	t.Helper()
	text, err := from.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return read(t, text)
}

// read is the event of a line.
func read(t *testing.T, line string) (e api.Event) {
	t.Helper()
	if err := json.Unmarshal([]byte(line), &e); err != nil {
		t.Fatalf("%s: %v", line, err)
	}
	return e
}

// change reads the next event that is none of the bookmarks between: one comes every ten
// seconds, which a slow machine may take.
func change(t *testing.T, from *bufio.Reader) api.Event {
	t.Helper()
	for {
		if e := line(t, from); e.Type != api.EventBookmark {
			return e
		}
	}
}

func TestWatch(t *testing.T) {
	t.Parallel()
	rig := servertest.Start(t)
	b := rig.Book
	l := netdbtest.Reserve(t, b, "a")
	resp := stream(t, rig.Socket, fmt.Sprintf("epoch=%s&since=%d", b.Epoch(), l.Rev-1))
	if resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "application/x-ndjson" {
		t.Fatal(resp.Status, resp.Header)
	}
	lines := bufio.NewReader(resp.Body)
	if e := line(t, lines); e.Type != api.EventBookmark || e.Revision != l.Rev-1 || e.Epoch != b.Epoch() {
		t.Errorf("%+v", e)
	}
	if e := change(t, lines); e.Type != api.EventChange || e.Kind != api.KindLease || e.Revision != l.Rev || e.Change.LeaseID != l.ID || e.Change.To != api.Reserved {
		t.Errorf("%+v", e)
	}
	if _, err := b.Cancel(t.Context(), netdbtest.Who(ipam.ByClient, "cancelled"), "a", 1); err != nil {
		t.Fatal(err)
	}
	for _, want := range []api.Kind{api.KindLease, api.KindAttempt} {
		if e := change(t, lines); e.Kind != want && e.Kind != api.KindLease && e.Kind != api.KindAttempt {
			t.Errorf("%+v", e)
		}
	}
	// Only pools; the history of the test's begins with one.
	resp = stream(t, rig.Socket, "since=0&kinds=pool")
	lines = bufio.NewReader(resp.Body)
	if e := change(t, lines); e.Kind != api.KindPool {
		t.Errorf("%+v", e)
	}
	for query, want := range map[string]api.Code{
		"since=x": api.InvalidArgument, "since=-1": api.InvalidArgument, "kinds=lease,": api.InvalidArgument, "kinds=LEASE": api.InvalidArgument,
		"from=1": api.InvalidArgument, "since=1": api.InvalidArgument, "epoch=": api.InvalidArgument, "since=1&since=2": api.InvalidArgument,
		"epoch=" + b.Epoch() + "&since=999999": api.Compacted, "epoch=other&since=1": api.Compacted, "epoch=other": api.Compacted,
	} {
		resp := stream(t, rig.Socket, query)
		var e api.Error
		if err := json.NewDecoder(resp.Body).Decode(&e); err != nil || e.Code != want || resp.StatusCode != want.Status() {
			t.Errorf("%s: %s, %+v, %v", query, resp.Status, e, err)
		}
	}
	// The daemon stops: the stream ends, and its end does not hold that up.
	began := time.Now()
	if err := rig.Stop(); err != nil {
		t.Error(err)
	}
	if _, err := io.Copy(io.Discard, lines); err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Error(err)
	}
	t.Log("stopped after", time.Since(began))
}

// A question for the head alone is answered, and ends.
func TestWatchHead(t *testing.T) {
	t.Parallel()
	rig := servertest.Start(t)
	one := browser(rig.Socket)
	one.Timeout = time.Minute
	one.Transport.(*http.Transport).DisableKeepAlives = false
	defer one.CloseIdleConnections()
	for range 2 { // on one connection
		if resp, err := one.Head("http://ipamd/v1/watch"); err != nil || resp.StatusCode != 200 {
			t.Error(resp, err)
		}
	}
}

// A stream whose kinds do not change is not silent: its bookmarks follow the book, so
// that one that resumes does not read everything again.
func TestWatchOfKindsThatRest(t *testing.T) {
	t.Parallel()
	rig := servertest.Start(t)
	lines := bufio.NewReader(stream(t, rig.Socket, "kinds=pool").Body)
	first := line(t, lines)
	ctx, cancel := context.WithCancel(t.Context())
	var busy sync.WaitGroup
	defer busy.Wait()
	defer cancel()
	busy.Go(func() {
		for l := netdbtest.Reserve(t, rig.Book, "a"); ctx.Err() == nil; {
			var err error
			if l, err = rig.Book.ConflictAt(context.Background(), netdbtest.Who(ipam.ByReconciler, "seen"), l.ID, l.Rev, json.RawMessage(`[{"witness":"probe"}]`)); err != nil {
				t.Error(err)
				return
			}
		}
	})
	e := line(t, lines)
	for e.Type == api.EventBookmark && e.Revision == first.Revision {
		e = line(t, lines) // a slow machine's first change may come behind a bookmark
	}
	if e.Type != api.EventBookmark || e.Revision <= first.Revision {
		t.Errorf("%+v follows %+v", e, first)
	}
}

// A stream that is never silent has bookmarks all the same, each at the change before it.
func TestWatchWithoutAPause(t *testing.T) {
	t.Parallel()
	rig := servertest.Start(t)
	lines := bufio.NewReader(stream(t, rig.Socket, "").Body)
	last := line(t, lines).Revision
	ctx, cancel := context.WithCancel(t.Context())
	var busy sync.WaitGroup
	defer busy.Wait()
	defer cancel()
	busy.Go(func() {
		for l := netdbtest.Reserve(t, rig.Book, "a"); ctx.Err() == nil; {
			var err error
			if l, err = rig.Book.ConflictAt(context.Background(), netdbtest.Who(ipam.ByReconciler, "seen"), l.ID, l.Rev, json.RawMessage(`[{"witness":"probe"}]`)); err != nil {
				t.Error(err)
				return
			}
		}
	})
	marks := 0
	for began := time.Now(); marks < 2; {
		switch e := line(t, lines); {
		case e.Type == api.EventBookmark && e.Revision == last && last > 0:
			marks++
		case e.Type != api.EventChange || e.Revision != last+1:
			t.Fatalf("%+v follows revision %d", e, last)
		default:
			last = e.Revision
		}
		if time.Since(began) > time.Minute {
			t.Fatalf("%d bookmarks in a minute, the last change is %d", marks, last)
		}
	}
}

// Those that only watch keep no peer from calling: their connections are closed first.
func TestWatchersMakeRoom(t *testing.T) {
	t.Parallel()
	rig := servertest.Start(t, func(c *server.Config) { c.MaxConns = 4 })
	for range 4 {
		line(t, bufio.NewReader(stream(t, rig.Socket, "").Body))
	}
	caller := browser(rig.Socket)
	caller.Timeout = time.Minute
	resp, err := caller.Get("http://ipamd/v1/status")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
}

// T9: a reader that is stuck is cut; the daemon goes on for others, and the reader
// resumes behind the last line that it has read.
func TestT9StuckWatcher(t *testing.T) {
	t.Parallel()
	ended := make(chan api.Code, 8)
	rig := servertest.Start(t, func(c *server.Config) {
		c.Observe = func(verb string, code api.Code, _ time.Duration) {
			if verb == string(api.VerbWatch) {
				ended <- code
			}
		}
	})
	b := rig.Book
	// Each change fills a good part of a socket's buffer.
	long := json.RawMessage(`[{"witness":"probe","detail":"` + strings.Repeat("x", 8<<10) + `"}]`)
	stuck := stream(t, rig.Socket, "since=0")
	for i := range 200 {
		l := netdbtest.Reserve(t, b, fmt.Sprint("s", i))
		if _, err := b.ConflictAt(t.Context(), netdbtest.Who(ipam.ByReconciler, "seen"), l.ID, l.Rev, long); err != nil {
			t.Fatal(err)
		}
	}
	end := b.Rev()
	quick := bufio.NewReader(stream(t, rig.Socket, "since=0").Body)
	for e := line(t, quick); e.Revision < end; {
		e = line(t, quick)
	}
	if code := <-ended; code != api.DeadlineExceeded { // the stuck one's, for the other one goes on
		t.Errorf("the stuck one ends with %q", code)
	}
	lines := bufio.NewReader(stuck.Body)
	last := int64(0)
	for {
		text, err := lines.ReadBytes('\n')
		if err != nil {
			break
		}
		var e api.Event
		if err := json.Unmarshal(text, &e); err != nil {
			t.Fatal(err)
		}
		if e.Type == api.EventChange && e.Revision != last+1 && last > 0 {
			t.Fatalf("revision %d follows %d", e.Revision, last)
		}
		last = max(last, e.Revision)
	}
	if last >= end {
		t.Fatal("the socket's buffers took everything")
	}
	rest := bufio.NewReader(stream(t, rig.Socket, fmt.Sprintf("epoch=%s&since=%d", b.Epoch(), last)).Body)
	for want := last + 1; want <= end; want++ {
		if e := change(t, rest); e.Revision != want {
			t.Fatalf("revision %d, and should be %d", e.Revision, want)
		}
	}
}

// A copied is what a reader makes of the stream alone: of each address its last change.
type copied struct {
	mu    sync.Mutex
	of    map[string]api.Lease
	lists int
	err   error
}

// follow replays the stream from its beginning, and again from a list where it must.
func (c *copied) follow(ctx context.Context, ipamd *client.Client, epoch string) {
	at := int64(0)
	for u := range ipamd.Watch(ctx, client.WatchFilter{Epoch: epoch}) {
		c.mu.Lock()
		switch {
		case u.List != nil:
			c.of, at = byAddress(u.List.Leases), u.List.Revision
			c.lists++
		case u.Event != nil && u.Event.Type == api.EventChange:
			if ch := u.Event.Change; ch.Revision <= at {
				c.err = fmt.Errorf("revision %d behind %d", ch.Revision, at)
			} else if at = ch.Revision; ch.To == api.Free {
				delete(c.of, ch.Address)
			} else if u.Event.Kind == api.KindLease {
				c.of[ch.Address] = essence(api.Lease{Address: ch.Address, ID: ch.LeaseID, Sandbox: ch.Sandbox, UID: ch.UID, Interface: ch.Interface,
					Attempt: ch.Attempt, State: ch.To, Revision: ch.Revision})
			}
		}
		c.mu.Unlock()
	}
}

func (c *copied) differs(want []api.Lease) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if diff := cmp.Diff(byAddress(want), c.of); c.err == nil && diff != "" {
		return errors.New(diff)
	}
	return c.err
}

func byAddress(leases []api.Lease) map[string]api.Lease {
	of := make(map[string]api.Lease, len(leases))
	for _, l := range leases {
		of[l.Address] = essence(l)
	}
	return of
}

// essence is what a listing and a change both say of an address.
func essence(l api.Lease) api.Lease {
	return api.Lease{Address: l.Address, ID: l.ID, Sandbox: l.Sandbox, UID: l.UID, Interface: l.Interface, Attempt: l.Attempt, State: l.State, Revision: l.Revision}
}

// T2, T6: a table that follows a daemon ends as the listing is, and so does a copy that is made of
// the stream from its first revision on: through changes by many callers, restarts of the
// daemon, a history that is compacted meanwhile, and peers' pushes of what has happened,
// late and in any order.
func TestTableFollowsTheBook(t *testing.T) {
	t.Parallel()
	opts := netdbtest.Options()
	opts.KeepChanges = 200
	b := netdbtest.OpenAt(t, t.TempDir()+"/book.db", opts)
	netdbtest.Pool(t, b, "default", "10.8.0.0/16")
	f := follow(t, b)
	c := &client.Client{Socket: f.socket}
	table := &routes.Table{}
	ctx, cancel := context.WithCancel(t.Context())
	replayed := &copied{of: make(map[string]api.Lease)}
	var following sync.WaitGroup
	following.Go(func() { table.Follow(ctx, c, nil) })
	following.Go(func() { replayed.follow(ctx, c, b.Epoch()) })
	defer following.Wait()
	defer cancel()
	var changes []ipam.Change
	for round := range 4 {
		from := b.Rev()
		var callers sync.WaitGroup
		for w := range 4 {
			callers.Go(func() { live(t, b, fmt.Sprint(round, "-", w), 60) })
		}
		if round%2 == 1 {
			f.restart()
		}
		callers.Wait()
		if got, err := b.Changes(t.Context(), from, 10_000); err == nil {
			changes = append(changes, got...)
		}
		for _, i := range rand.Perm(len(changes)) {
			if ch := changes[i]; ch.Subject == ipam.OfLease {
				if r, err := routes.OfChange(api.Change{Revision: ch.Rev, Address: ch.Addr.String(), LeaseID: ch.LeaseID, Sandbox: ch.Sandbox,
					UID: ch.UID, Interface: ch.Interface, Attempt: ch.Attempt, To: api.State(ch.To)}); err != nil {
					t.Error(err)
				} else if _, err := table.Push(b.Epoch(), r); err != nil {
					t.Error(err)
				}
			}
		}
		if round == 2 { // what was missed while no daemon served is not kept
			f.stop()
			end := b.Rev() // as far as any reader is
			for {
				live(t, b, fmt.Sprint(b.Rev()), 400)
				if err := b.Tidy(t.Context()); err != nil {
					t.Fatal(err)
				}
				if _, err := b.Changes(t.Context(), end, 1); errors.Is(err, ipam.ErrPruned) {
					break
				}
			}
			f.start()
		}
		all, err := c.Leases(t.Context(), client.LeaseFilter{})
		if err != nil {
			t.Fatal(err)
		}
		want, fault := tableOf(t, all), error(nil)
		realtest.Eventually(t, 2*time.Minute, "table and copy to be as the listing is", func() bool {
			fault = replayed.differs(all.Leases)
			return table.Status().String() == want.Status().String() && fault == nil
		})
		if fault != nil {
			t.Error(fault)
		}
	}
	replayed.mu.Lock()
	defer replayed.mu.Unlock()
	if replayed.lists == 0 {
		t.Error("the copy never had to begin with a list")
	}
}

// T7: another book behind the same socket is another epoch: what the first one had goes,
// and its revisions are not compared with the new ones.
func TestT7AnotherBook(t *testing.T) {
	t.Parallel()
	var books [2]*netdb.Book
	for i := range books {
		books[i] = netdbtest.OpenAt(t, fmt.Sprintf("%s/%d.db", t.TempDir(), i), netdbtest.Options())
		netdbtest.Pool(t, books[i], "default", "10.8.0.0/16")
	}
	netdbtest.Reserve(t, books[0], "old")
	for i := range 20 {
		netdbtest.Reserve(t, books[1], fmt.Sprint("new", i))
	}
	d := follow(t, books[0])
	table := &routes.Table{}
	ctx, cancel := context.WithCancel(t.Context())
	var following sync.WaitGroup
	following.Go(func() { table.Follow(ctx, &client.Client{Socket: d.socket}, nil) })
	defer following.Wait()
	defer cancel()
	has := func(sandbox string) bool { _, ok := table.Lookup(sandbox); return ok }
	realtest.Eventually(t, 2*time.Minute, "the table to have the first book", func() bool { return has("old") })
	d.stop()
	d.book = books[1]
	d.start()
	realtest.Eventually(t, 2*time.Minute, "the table to have the second book", func() bool { return has("new19") })
	if s := table.Status(); has("old") || !has("new0") || s.Epoch != books[1].Epoch() || s.Routes != 20 {
		t.Errorf("%s, of the first book: %v", s, has("old"))
	}
	netdbtest.Reserve(t, books[1], "newer") // and it goes on there
	realtest.Eventually(t, 2*time.Minute, "the table to follow the second book", func() bool { return has("newer") })
}

// T11: while an address cools, neither whois nor a gateway's table names its last owner,
// whatever comes late of it.
func TestT11NoOwnerWhileItCools(t *testing.T) {
	t.Parallel()
	rig := servertest.Start(t)
	c := &client.Client{Socket: rig.Socket}
	table := &routes.Table{}
	ctx, cancel := context.WithCancel(t.Context())
	var following sync.WaitGroup
	following.Go(func() { table.Follow(ctx, c, nil) })
	defer following.Wait()
	defer cancel()
	given, err := c.Allocate(ctx, api.AllocateRequest{Sandbox: "a"})
	if err != nil {
		t.Fatal(err)
	}
	l := given.Leases[0]
	bound, err := c.Bind(ctx, l.ID, api.BindRequest{HostInterface: "vetha"})
	if err != nil {
		t.Fatal(err)
	}
	realtest.Eventually(t, time.Minute, "the table to have the route", func() bool {
		r, ok := table.Lookup("a")
		return ok && r.Served()
	})
	if who, err := c.Whois(ctx, l.Address); err != nil || who.Owner != "a" {
		t.Errorf("%+v, %v", who, err)
	}
	if _, err := c.Release(ctx, l.ID, api.ReleaseRequest{}); err != nil && !errors.Is(err, client.ErrNotReady) {
		t.Fatal(err)
	}
	rig.Confirm(t, l.ID)
	realtest.Eventually(t, time.Minute, "the table to drop the route", func() bool {
		_, ok := table.Lookup("a")
		return !ok
	})
	late, err := routes.OfLease(bound.Lease)
	if err != nil {
		t.Fatal(err)
	}
	if newer, err := table.Push(rig.Book.Epoch(), late); newer || err != nil {
		t.Errorf("a late push: newer %v, %v", newer, err)
	}
	if r, ok := table.Lookup("a"); ok {
		t.Errorf("the table has %+v", r)
	}
	who, err := c.Whois(ctx, l.Address)
	if err != nil || who.State != api.Cooling || who.Owner != "" || who.Lease != nil {
		t.Errorf("%+v, %v", who, err)
	}
}

// tableOf is a table that was only listed.
func tableOf(t *testing.T, all *api.LeaseList) *routes.Table {
	t.Helper()
	l := routes.List{Epoch: all.Epoch, Revision: all.Revision}
	for _, lease := range all.Leases {
		if r, err := routes.OfLease(lease); err == nil && routes.Kept(lease.State) {
			l.Routes = append(l.Routes, r)
		}
	}
	table := &routes.Table{}
	if err := table.Replace(l); err != nil {
		t.Fatal(err)
	}
	return table
}

// live has sandboxes live and end: some stay.
func live(t *testing.T, b *netdb.Book, prefix string, n int) {
	who := netdbtest.Who(ipam.ByClient, "test")
	for i := range n {
		l, err := netdbtest.TryReserve(b, b.Pools()[0], fmt.Sprint(prefix, "-", i), netdbtest.Policy)
		if err == nil && i%4 > 0 {
			l, err = b.Bind(t.Context(), who, l.ID, 0, ipam.Binding{HostInterface: "veth" + prefix})
		}
		if err == nil && i%4 == 2 {
			_, err = b.Pause(t.Context(), who, l.ID, 0)
		}
		if err == nil && i%4 == 3 {
			if l, err = b.Release(t.Context(), who, l.ID, "", 0); err == nil && i%8 == 3 {
				_, err = b.Confirm(t.Context(), netdbtest.Who(ipam.ByWatchdog, "removal_confirmed"), l.ID, l.Rev, nil)
			}
		}
		if err != nil {
			t.Error(err)
			return
		}
	}
}

// A daemon is a server that is started again on the same socket and book.
type daemon struct {
	t      *testing.T
	book   *netdb.Book
	socket string
	stop   func()
}

func follow(t *testing.T, b *netdb.Book) *daemon {
	t.Helper()
	d := &daemon{t: t, book: b, socket: servertest.Socket(t)}
	d.start()
	t.Cleanup(func() { d.stop() })
	return d
}

func (d *daemon) restart() { d.stop(); d.start() }

func (d *daemon) start() {
	d.t.Helper()
	rig := &servertest.Rig{Book: d.book, Log: new(servertest.Log), Board: census.NewBoard()}
	s, err := server.New(servertest.Config(rig))
	if err != nil {
		d.t.Fatal(err)
	}
	ln, err := socket.Listen(d.socket, 0o666, -1)
	if err != nil {
		d.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- s.Serve(ctx, ln) }()
	d.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-served; err != nil {
			d.t.Error(err)
		}
	})
}
