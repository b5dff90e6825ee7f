package server_test

import (
	"bufio"
	"context"
	"database/sql"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ipamd/ipamd/allocator"
	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/internal/realtest"
	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/server"
	"github.com/ipamd/ipamd/server/servertest"
)

// asGreedy makes the test binary a process that asks for one change more at
// once than it may, and waits for the answers until its standard input ends.
const asGreedy = "IPAMD_TEST_AS_GREEDY"

func greedy(socket string, most int) error {
	answers := make(chan string, most+1)
	for n := range most + 1 {
		c, err := net.Dial("unix", socket)
		if err != nil {
			return err
		}
		defer c.Close()
		body := fmt.Sprintf(`{"uid":"g%d","attempt":1}`, n)
		if _, err := fmt.Fprintf(c, "POST /v1/tombstones HTTP/1.1\r\nHost: i\r\nContent-Length: %d\r\n\r\n%s", len(body), body); err != nil {
			return err
		}
		go func() {
			line, _ := bufio.NewReader(c).ReadString('\n')
			answers <- line
		}()
	}
	// That one is refused says that the others are in.
	if first := <-answers; !strings.Contains(first, " 429 ") {
		return fmt.Errorf("the first answer is %q", first)
	}
	fmt.Println("all are in")
	_, err := io.Copy(io.Discard, os.Stdin)
	return err
}

// startGreedy returns once as many calls are in as one process may have. It ends when it is asked to,
// or with the test.
func startGreedy(t *testing.T, rig *servertest.Rig, most int) (leave func()) {
	t.Helper()
	cmd := exec.Command("/proc/self/exe", strconv.Itoa(most))
	cmd.Env = []string{asGreedy + "=" + rig.Socket}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return startPeer(t, cmd)
}

// An observed is the verbs of the calls that have ended, in that order, without
// those that were refused.
type observed struct {
	mu    sync.Mutex
	verbs []string
}

func (o *observed) call(verb string, code api.Code, _ time.Duration) {
	if code == api.TooManyRequests {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.verbs = append(o.verbs, verb)
}

func (o *observed) count(verb api.Verb) (n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, v := range o.verbs {
		if v == string(verb) {
			n++
		}
	}
	return n
}

// An announced says when an allocation is asked for.
type announced struct {
	server.Allocator
	asked chan<- struct{}
}

func (a announced) Allocate(ctx context.Context, r allocator.Request) (*allocator.Result, error) {
	a.asked <- struct{}{}
	return a.Allocator.Allocate(ctx, r)
}

const manyCalls = 400

// held starts a server whose book another connection keeps from being written
// until release is called. A call keeps the others of its peer for a turn.
func held(t *testing.T, round time.Duration, asked chan<- struct{}) (s *speaker, ended *observed, release func()) {
	t.Helper()
	realtest.Root(t)
	ended = new(observed)
	rig := servertest.Start(t, func(c *server.Config) {
		c.MaxConns, c.Limits.InFlight, c.Deadline = 2*manyCalls, manyCalls, 10*time.Minute
		c.Limits.Slot = round
		c.Observe = ended.call
		c.Allocator = announced{c.Allocator, asked}
	})
	db, err := sql.Open("sqlite", rig.Book.Info().Path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	db.SetMaxOpenConns(1)
	if _, err := db.Exec(`BEGIN IMMEDIATE`); err != nil {
		t.Fatal(err)
	}
	release = sync.OnceFunc(func() {
		if _, err := db.Exec(`ROLLBACK`); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(release)
	return speak(t, rig), ended, release
}

// TestAnotherPeerIsAnsweredFirst is S2: while the book cannot be written one process asks four
// hundred times, then another one once. When it can be, that one is among the
// first to be answered, and it had its answers about the daemon's health in
// between.
func TestAnotherPeerIsAnsweredFirst(t *testing.T) {
	const most = 100 // 64 run before the other one asks, and 8 beside it
	var before []int
	for range 3 { // between being asked for and being in line the lone call may be held up
		before = append(before, answeredBefore(t))
		if last := before[len(before)-1]; t.Failed() || last <= most {
			return
		}
	}
	t.Errorf("%d of %d calls were answered before the other's, want at most %d", before, manyCalls, most)
}

// answeredBefore plays the scene of TestAnotherPeerIsAnsweredFirst and returns how many of the many
// calls were answered before the other's.
func answeredBefore(t *testing.T) (before int) {
	asked := make(chan struct{}, 1)
	s, ended, release := held(t, time.Hour, asked)
	defer startGreedy(t, s.Rig, manyCalls)()
	want[api.Health](t, s, 200, "Health", "GET", "/healthz", "")
	want[api.Health](t, s, 200, "Health", "GET", "/readyz", "")
	if a := s.ask(t, "GET", "/metrics", ""); a.status != 200 {
		t.Errorf("metrics: %d", a.status)
	}
	got := make(chan answer, 1)
	go func() { got <- s.ask(t, "POST", "/v1/leases", `{"sandbox":"a"}`) }()
	<-asked
	release()
	if a := <-got; a.status != 201 {
		t.Errorf("allocate: %d %s", a.status, a.body)
	}
	realtest.Eventually(t, soon, "every call was answered", func() bool {
		return ended.count(api.VerbCancel) == manyCalls && ended.count(api.VerbAllocate) == 1
	})
	ended.mu.Lock()
	defer ended.mu.Unlock()
	ended.verbs = slices.DeleteFunc(ended.verbs, func(v string) bool {
		return v != string(api.VerbCancel) && v != string(api.VerbAllocate)
	})
	before = slices.Index(ended.verbs, string(api.VerbAllocate))
	t.Logf("%d of %d calls were answered before the other's", before, manyCalls)
	return before
}

// TestCallsThatAreGivenUp: who hangs up while its calls wait for their turn leaves at
// once, and nothing of it is done afterwards.
func TestCallsThatAreGivenUp(t *testing.T) {
	s, ended, release := held(t, time.Hour, nil)
	startGreedy(t, s.Rig, manyCalls)()
	realtest.Eventually(t, soon, "every call has ended", func() bool {
		return ended.count(api.VerbCancel) == manyCalls
	})
	rev := s.Book.Rev()
	release()
	want[api.CancelReply](t, s, 200, "CancelReply", "POST", "/v1/tombstones", `{"uid":"a","attempt":1}`)
	if now := s.Book.Rev(); now > rev+1 {
		t.Errorf("%d revisions after all callers left, want one at most", now-rev)
	}
}

// TestHealthTakesNoSlot: nor does a process wait for its own calls when it asks
// how the daemon is.
func TestHealthTakesNoSlot(t *testing.T) {
	const many = 100
	asked := make(chan struct{}, many)
	s, _, release := held(t, time.Hour, asked)
	var all sync.WaitGroup
	for n := range many {
		all.Go(func() {
			if a := s.ask(t, "POST", "/v1/leases", fmt.Sprintf(`{"sandbox":"s%d"}`, n)); a.status != 201 {
				t.Errorf("allocate: %d %s", a.status, a.body)
			}
		})
	}
	for range 64 { // so many run
		<-asked
	}
	for _, path := range []string{"/healthz", "/readyz", "/metrics", "/v1/version"} {
		if a := s.ask(t, "GET", path, ""); a.status != 200 {
			t.Errorf("%s: %d %s", path, a.status, a.body)
		}
	}
	if n := len(asked); n > 0 {
		t.Errorf("%d more calls run than 64", n)
	}
	release()
	all.Wait()
}

// TestCallsThatHang: calls that wait for something that hangs keep the others of
// their peer for no longer than a turn: each gets to where it can say why.
func TestCallsThatHang(t *testing.T) {
	const many = 200
	asked := make(chan struct{}, many)
	s, _, release := held(t, 0, asked)
	var all sync.WaitGroup
	for n := range many {
		all.Go(func() {
			if a := s.ask(t, "POST", "/v1/leases", fmt.Sprintf(`{"sandbox":"s%d"}`, n)); a.status != 201 {
				t.Errorf("allocate: %d %s", a.status, a.body)
			}
		})
	}
	for range many {
		<-asked
	}
	if a := s.ask(t, "GET", "/v1/status", ""); a.status != 200 {
		t.Errorf("status: %d %s", a.status, a.body)
	}
	release()
	all.Wait()
}

// TestWaitingReleases: releases that wait for their confirmation keep no call
// of the same peer from running.
func TestWaitingReleases(t *testing.T) {
	const many = 100
	s := speak(t, servertest.Start(t, func(c *server.Config) { c.MaxConns = 4 * many }))
	var waiting sync.WaitGroup
	for n := range many {
		l := allocate(t, s, fmt.Sprint("w", n))
		waiting.Go(func() {
			if a := s.ask(t, "POST", "/v1/leases/"+l.ID+"/release", `{"wait":"60s"}`); a.status != 202 {
				t.Errorf("a release that waits: %d %s", a.status, a.body)
			}
		})
	}
	realtest.Eventually(t, soon, "every release waits", func() bool {
		leases, _ := s.Book.Leases()
		return !slices.ContainsFunc(leases, func(l *ipam.Lease) bool { return l.State != ipam.Releasing })
	})
	allocate(t, s, "another")
	if err := s.Stop(); err != nil { // it ends the waits
		t.Error(err)
	}
	waiting.Wait()
}
