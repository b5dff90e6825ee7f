package watchdog_test

import (
	"net"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ipamd/ipamd/internal/ctrdtest"
	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/netdb/netdbtest"
	"github.com/ipamd/ipamd/watchdog"
	"github.com/ipamd/ipamd/watchdog/owner"
)

// hung is an owner that accepts connections and says nothing; asked counts the
// questions that came to an end.
func hung(t *testing.T) (client *owner.Client, asked *atomic.Int32) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "o")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var open []net.Conn
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			open = append(open, c)
			mu.Unlock()
		}
	}()
	t.Cleanup(func() {
		l.Close()
		mu.Lock()
		defer mu.Unlock()
		for _, c := range open {
			c.Close()
		}
	})
	asked = new(atomic.Int32)
	client, err = owner.New(owner.Config{Socket: path, Timeout: 200 * time.Millisecond, OnLookup: func(watchdog.Verdict) { asked.Add(1) }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return client, asked
}

// W5. An owner that hangs keeps every sandbox, and costs one timeout, not one
// for each: after the first question that it leaves unanswered it is not asked for a while.
func TestW5AnOwnerThatHangsIsAskedOnce(t *testing.T) {
	d := ctrdtest.Start(t, ctrdtest.V2)
	client, asked := hung(t)
	s := newScene(t, d, func(c *watchdog.Config) { c.Owner = client })
	began := time.Now()
	for i := range 50 {
		l := netdbtest.Reserve(t, s.book, "s"+string(rune('A'+i)))
		let, why, err := s.Expire(ctx, l, "expired")
		if let || err != nil || !strings.Contains(why, "could not be asked") {
			t.Fatalf("released %v, %q, %v", let, why, err)
		}
		if now, _ := s.book.At(l.Addr); now.State != ipam.Reserved {
			t.Fatalf("it is %s", now.State)
		}
	}
	// Once more for each pause that ended while all this went on.
	took := time.Since(began)
	if n := asked.Load(); n < 1 || n > 1+int32(took/watchdog.OwnerPause) {
		t.Errorf("it was asked %d times in %v", n, took)
	}
}
