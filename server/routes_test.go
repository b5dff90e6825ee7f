package server_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/client"
	"github.com/ipamd/ipamd/internal/realtest"
	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/netdb/netdbtest"
	"github.com/ipamd/ipamd/routes"
	"github.com/ipamd/ipamd/server/servertest"
)

// A gateway has a table, and a socket on which peers push.
type gateway struct {
	*testing.T
	table  *routes.Table
	peers  http.Client
	follow func(*client.Client) // the daemon, until the test ends
}

func newGateway(t *testing.T) *gateway {
	t.Helper()
	g := &gateway{T: t, table: &routes.Table{}}
	path := servertest.Socket(t)
	ln, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	hs := &http.Server{Handler: g.table}
	var running sync.WaitGroup
	running.Go(func() { _ = hs.Serve(ln) }) // until it is closed
	g.peers.Transport = &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", path)
	}}
	ctx, cancel := context.WithCancel(context.Background())
	g.follow = func(c *client.Client) { running.Go(func() { g.table.Follow(ctx, c, nil) }) }
	t.Cleanup(func() {
		cancel()
		hs.Close()
		running.Wait()
		g.peers.CloseIdleConnections()
	})
	return g
}

// post sends a body to the table, and decodes the answer.
func (g *gateway) post(body []byte, into any) int {
	g.Helper()
	resp, err := g.peers.Post("http://gateway/", "application/json", bytes.NewReader(body))
	if err != nil {
		g.Fatal(err)
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(into); err != nil {
		g.Fatal(err)
	}
	return resp.StatusCode
}

// push brings what a change of the book said, and returns how many of them were newer.
func (g *gateway) push(epoch string, all ...api.Change) int {
	g.Helper()
	body, err := json.Marshal(routes.PushRequest{Epoch: epoch, Changes: all})
	if err != nil {
		g.Fatal(err)
	}
	var reply routes.PushReply
	if code := g.post(body, &reply); code != http.StatusOK {
		g.Fatalf("a push of %d changes: %d", len(all), code)
	}
	return reply.Newer
}

// is waits until the stream has brought a revision, and compares where a sandbox is: "" is
// nowhere. What is there and not served has a "!" behind it.
func (g *gateway) is(revision int64, sandbox, want string) {
	g.Helper()
	realtest.Eventually(g, 2*time.Minute, fmt.Sprintf("the table to be at revision %d", revision), func() bool {
		return g.table.Ready() && g.table.Status().Revision >= revision
	})
	g.now(sandbox, want)
}

func (g *gateway) now(sandbox, want string) {
	g.Helper()
	got := ""
	if r, ok := g.table.Lookup(sandbox); ok {
		if got = r.Addr.String(); !r.Served() {
			got += "!"
		}
	}
	if got != want {
		g.Errorf("%.40q is at %q, and should be at %q", sandbox, got, want)
	}
}

// message is the change that the book has at a revision, as the socket says it.
func message(t *testing.T, c *client.Client, l *ipam.Lease) api.Change {
	t.Helper()
	all, err := c.History(t.Context(), client.HistoryFilter{LeaseID: l.ID, Before: l.Rev + 1})
	if err != nil {
		t.Fatal(err)
	}
	for _, ch := range all.Changes {
		if ch.Revision == l.Rev {
			return ch
		}
	}
	t.Fatalf("the history has no revision %d of lease %s", l.Rev, l.ID)
	return api.Change{}
}

// oneAddress is a daemon with one address to give, at once again when it is released.
func oneAddress(t *testing.T) (*daemon, *client.Client) {
	t.Helper()
	b := netdbtest.OpenAt(t, t.TempDir()+"/book.db", netdbtest.Options())
	netdbtest.Pool(t, b, "default", "10.8.64.0/30")
	d := follow(t, b)
	return d, &client.Client{Socket: d.socket}
}

// takes has a sandbox bound to the next address.
func (d *daemon) takes(sandbox string) *ipam.Lease {
	d.t.Helper()
	l, err := netdbtest.TryReserve(d.book, d.book.Pools()[0], sandbox, ipam.Policy{Cooldown: 1, CooldownMin: 1})
	if err == nil {
		l, err = d.book.Bind(d.t.Context(), netdbtest.Who(ipam.ByClient, "test"), l.ID, 0, ipam.Binding{HostInterface: "veth"})
	}
	if err != nil {
		d.t.Fatal(err)
	}
	return l
}

// T1: a delete, and then what a peer knew from before it: stale at once, a year later when
// nothing is remembered of the delete, for a table that never had the sandbox, and for one
// that got the delete by a push, ahead of the stream.
func TestT1ALatePushOverSockets(t *testing.T) {
	t.Parallel()
	d, c := oneAddress(t)
	var mu sync.Mutex
	now := time.Now()
	saw, late, ahead := newGateway(t), newGateway(t), newGateway(t)
	saw.table.Now = func() time.Time { mu.Lock(); defer mu.Unlock(); return now }
	saw.follow(c)
	before, err := c.Leases(t.Context(), client.LeaseFilter{})
	if err != nil {
		t.Fatal(err)
	}
	if err := ahead.table.Replace(routes.List{Epoch: before.Epoch, Revision: before.Revision}); err != nil {
		t.Fatal(err)
	}
	bound := d.takes("a")
	saw.is(bound.Rev, "a", "10.8.64.2")
	cooling := netdbtest.Cool(t, d.book, bound)
	epoch, old, end := d.book.Epoch(), message(t, c, bound), message(t, c, cooling)
	saw.is(cooling.Rev, "a", "")
	late.follow(c)
	late.is(cooling.Rev, "a", "")
	if n := ahead.push(epoch, end); n != 1 {
		t.Errorf("of the delete, ahead of the stream, %d is news", n)
	}
	for _, g := range []*gateway{saw, late, ahead} {
		if n := g.push(epoch, old); n != 0 {
			t.Errorf("of what was before the delete %d is news", n)
		}
		g.now("a", "")
	}
	mu.Lock()
	now = now.Add(365 * 24 * time.Hour)
	mu.Unlock()
	ahead.follow(c) // and the stream passes what was pushed
	ahead.is(cooling.Rev, "a", "")
	for _, g := range []*gateway{saw, ahead} {
		if n := g.push(epoch, old); n != 0 || g.table.Status().Ahead != 0 {
			t.Errorf("a year later %d is news; %s", n, g.table.Status())
		}
		g.now("a", "")
	}
}

// T3: every state of a real lease, by the list, the stream, a push and a push before the
// list: kept until its lease ended, served while it is bound.
func TestT3EveryStateOverSockets(t *testing.T) {
	t.Parallel()
	d, c := oneAddress(t)
	stream, pushed := newGateway(t), newGateway(t)
	stream.follow(c)
	who, ctx := netdbtest.Who(ipam.ByClient, "test"), t.Context()
	l, err := netdbtest.TryReserve(d.book, d.book.Pools()[0], "a", netdbtest.Policy)
	if err != nil {
		t.Fatal(err)
	}
	start, err := c.Leases(ctx, client.LeaseFilter{})
	if err != nil {
		t.Fatal(err)
	}
	if err := pushed.table.Replace(routes.List{Epoch: start.Epoch, Revision: start.Revision - 1}); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		state api.State
		want  string
		make  func() (*ipam.Lease, error)
	}{
		{api.Reserved, "10.8.64.2!", func() (*ipam.Lease, error) { return l, nil }},
		{api.Bound, "10.8.64.2", func() (*ipam.Lease, error) {
			return d.book.Bind(ctx, who, l.ID, 0, ipam.Binding{HostInterface: "veth"})
		}},
		{api.Paused, "10.8.64.2!", func() (*ipam.Lease, error) { return d.book.Pause(ctx, who, l.ID, 0) }},
		{api.Bound, "10.8.64.2", func() (*ipam.Lease, error) { return d.book.Resume(ctx, who, l.ID, 0) }},
		{api.Releasing, "10.8.64.2!", func() (*ipam.Lease, error) { return d.book.Release(ctx, who, l.ID, "", 0) }},
		{api.Cooling, "", func() (*ipam.Lease, error) {
			return d.book.Confirm(ctx, netdbtest.Who(ipam.ByWatchdog, "gone"), l.ID, l.Rev, nil)
		}},
		{api.Quarantined, "", func() (*ipam.Lease, error) {
			return d.book.Hold(ctx, ipam.Who{Actor: ipam.ByOperator, Peer: "test", Reason: "held", Note: "looked at"}, l.Addr, nil)
		}},
	} {
		if l, err = step.make(); err != nil {
			t.Fatal(step.state, err)
		}
		change := message(t, c, l)
		if change.To != step.state {
			t.Fatalf("%+v, and should be %s", change, step.state)
		}
		stream.is(l.Rev, "a", step.want)
		if n := pushed.push(start.Epoch, change); n != 1 {
			t.Errorf("%s: of the push %d is news", step.state, n)
		}
		pushed.now("a", step.want)
		listed, early := newGateway(t), newGateway(t)
		early.push(start.Epoch, change)
		if early.table.Ready() {
			t.Errorf("%s: a table is ready by a push", step.state)
		}
		if err := early.table.Replace(routes.List{Epoch: start.Epoch, Revision: l.Rev - 1}); err != nil {
			t.Fatal(err)
		}
		early.now("a", step.want)
		listed.follow(c)
		listed.is(l.Rev, "a", step.want)
	}
}

// T4: names as they are, from the allocation over the socket to the look-up, by the stream,
// the list and a push.
func TestT4WholeNamesOverSockets(t *testing.T) {
	t.Parallel()
	rig := servertest.Start(t)
	c := &client.Client{Socket: rig.Socket}
	stream, listed, pushed := newGateway(t), newGateway(t), newGateway(t)
	stream.follow(c)
	random := make([]byte, 253)
	for i := range random {
		random[i] = byte('!' + rand.IntN('~'-'!')) // printed ones: JSON has no others as they are
	}
	names := []string{"a--b", "a", "b", "b--c", "a--b--c", "team/x--y", "team/x", "A", "é", "e\u0301", string(random), string(random[:252])}
	of := map[string]string{}
	var changes []api.Change
	revision := int64(0)
	for _, name := range names {
		given, err := c.Allocate(t.Context(), api.AllocateRequest{Sandbox: name})
		if err != nil {
			t.Fatal(err)
		}
		bound, err := c.Bind(t.Context(), given.Leases[0].ID, api.BindRequest{HostInterface: "veth"})
		if err != nil {
			t.Fatal(err)
		}
		l := bound.Lease
		of[name], revision = l.Address, l.Revision
		changes = append(changes, api.Change{Revision: l.Revision, Address: l.Address, LeaseID: l.ID, Sandbox: l.Sandbox, UID: l.UID, Interface: l.Interface, Attempt: l.Attempt, To: l.State})
	}
	if err := pushed.table.Replace(routes.List{Epoch: rig.Book.Epoch()}); err != nil {
		t.Fatal(err)
	}
	if n := pushed.push(rig.Book.Epoch(), changes...); n != len(names) {
		t.Errorf("of %d pushes %d were news", len(names), n)
	}
	listed.follow(c)
	for _, g := range []*gateway{stream, listed} {
		g.is(revision, "a-", "")
	}
	for _, g := range []*gateway{stream, listed, pushed} {
		for name, addr := range of {
			g.now(name, addr)
		}
	}
	l, err := rig.Book.Lease(changes[1].LeaseID) // "a" ends, and none that begins with it
	if err != nil {
		t.Fatal(err)
	}
	end := netdbtest.Cool(t, rig.Book, l)
	stream.is(end.Rev, "a", "")
	for _, name := range names[2:] {
		stream.now(name, of[name])
	}
}

// T5: an address goes from one sandbox to the next while a peer brings old news of it again
// and again, and another looks on: once the table has passed the delete, the first sandbox
// does not resolve to it for a moment.
func TestT5AnAddressOfAnotherOverSockets(t *testing.T) {
	t.Parallel()
	d, c := oneAddress(t)
	g := newGateway(t)
	g.follow(c)
	var known []api.Change
	for i := range 12 {
		name := fmt.Sprint("s", i)
		l := d.takes(name)
		g.is(l.Rev, name, "10.8.64.2")
		known = append(known, message(t, c, l))
		end := netdbtest.Cool(t, d.book, l)
		g.is(end.Rev, name, "")
		var looking sync.WaitGroup
		stop := make(chan struct{})
		looking.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				for _, past := range known {
					if r, ok := g.table.Lookup(past.Sandbox); ok {
						t.Errorf("%s ended at %d, and is at %s by revision %d", past.Sandbox, end.Rev, r.Addr, r.Revision)
						return
					}
				}
			}
		})
		next := d.takes(fmt.Sprint("next-", i))
		for _, n := range rand.Perm(len(known)) {
			if g.push(d.book.Epoch(), known[n]) != 0 {
				t.Errorf("revision %d is news", known[n].Revision)
			}
		}
		g.is(next.Rev, next.Sandbox, "10.8.64.2")
		close(stop)
		looking.Wait()
		g.is(netdbtest.Cool(t, d.book, next).Rev, next.Sandbox, "")
	}
}

// T8: a change that leaves the route as it was has its revision: what is older is stale.
func TestT8UnchangedOverSockets(t *testing.T) {
	t.Parallel()
	d, c := oneAddress(t)
	g := newGateway(t)
	g.follow(c)
	bound := d.takes("a")
	who := netdbtest.Who(ipam.ByClient, "test")
	if _, err := d.book.Pause(t.Context(), who, bound.ID, 0); err != nil {
		t.Fatal(err)
	}
	paused, err := d.book.Lease(bound.ID)
	if err != nil {
		t.Fatal(err)
	}
	again, err := d.book.Resume(t.Context(), who, bound.ID, 0)
	if err != nil {
		t.Fatal(err)
	}
	noted, err := d.book.ConflictAt(t.Context(), netdbtest.Who(ipam.ByReconciler, "seen"), again.ID, again.Rev, json.RawMessage(`[{"witness":"probe"}]`))
	if err != nil {
		t.Fatal(err)
	}
	g.is(noted.Rev, "a", "10.8.64.2")
	if r, _ := g.table.Lookup("a"); r.Revision != noted.Rev {
		t.Errorf("the route is of revision %d, and what was noted last is %d", r.Revision, noted.Rev)
	}
	if n := g.push(d.book.Epoch(), message(t, c, paused)); n != 0 {
		t.Errorf("of what was before %d is news", n)
	}
	g.now("a", "10.8.64.2")
}

// T10: a table without a list is not ready, and keeps what is pushed until its daemon comes;
// what is malformed changes nothing, and the field is named.
func TestT10BeforeTheDaemonAnswers(t *testing.T) {
	t.Parallel()
	d, c := oneAddress(t)
	before, err := c.Leases(t.Context(), client.LeaseFilter{})
	if err != nil {
		t.Fatal(err)
	}
	bound := d.takes("a")
	news := message(t, c, bound)
	d.stop()
	g := newGateway(t)
	g.follow(c)
	g.push(before.Epoch, news)
	if _, ok := g.table.Lookup("a"); ok || g.table.Ready() {
		t.Error("a table without a list resolves, or is ready")
	}
	good, err := json.Marshal(news)
	if err != nil {
		t.Fatal(err)
	}
	is := g.table.Status().String()
	for field, broken := range map[string][2]string{
		"changes[0].uid":       {`"uid":"a"`, `"uid":""`},
		"/changes/0/revision":  {fmt.Sprintf(`"revision":%d`, news.Revision), `"revision":"abc"`},
		"changes[0].address":   {`"10.8.64.2"`, `"10.8.64.256"`},
		"changes[0].sandbox":   {`"sandbox":"a"`, `"sandbox":"` + strings.Repeat("a", 254) + `"`},
		"":                     {`"sandbox":"a"`, `"sandbox":"` + strings.Repeat("a", 2<<20) + `"`},
		"/changes/0/unlooked":  {`"sandbox":"a"`, `"sandbox":"a","unlooked":1`},
		"changes[0].lease_id":  {`"lease_id":"` + news.LeaseID + `"`, `"lease_id":""`},
		"changes[0].to":        {`"to":"bound"`, `"to":""`},
		"changes[0].revision":  {fmt.Sprintf(`"revision":%d`, news.Revision), `"revision":0`},
		"/changes/0/attempt":   {`"attempt":1`, `"attempt":1.5`},
		"/changes/0/interface": {`"interface":"eth0"`, `"interface":{}`},
	} {
		body := strings.Replace(string(good), broken[0], broken[1], 1)
		if body == string(good) {
			t.Fatalf("%s has no %s", good, broken[0])
		}
		var refusal api.Error
		code := g.post(fmt.Appendf(nil, `{"epoch":%q,"changes":[%s]}`, before.Epoch, body), &refusal)
		if named, _ := refusal.Details["field"].(string); code < 400 || code >= 500 || named != field {
			t.Errorf("%s: %d, field %q: %s", field, code, named, refusal.Message)
		}
		if now := g.table.Status().String(); now != is {
			t.Fatalf("%s: the table became %s", field, now)
		}
	}
	// A list that was read before, and comes now, has what was pushed meanwhile behind it.
	slow := newGateway(t)
	slow.push(before.Epoch, news)
	if err := slow.table.Replace(routes.List{Epoch: before.Epoch, Revision: before.Revision}); err != nil {
		t.Fatal(err)
	}
	slow.now("a", "10.8.64.2")
	d.start()
	g.is(bound.Rev, "a", "10.8.64.2")
}
