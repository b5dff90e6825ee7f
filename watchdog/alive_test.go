package watchdog

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/internal/realtest"
	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/netdb"
	. "github.com/ipamd/ipamd/netdb/netdbtest"
)

// A leash holds the caller that reads all leases of a book, once it is taut.
type leash struct {
	*netdb.Book
	taut atomic.Bool
	held atomic.Bool
	free chan struct{}
}

func (l *leash) Leases() ([]*ipam.Lease, int64) {
	if l.taut.Load() {
		l.held.Store(true)
		<-l.free
	}
	return l.Book.Leases()
}

// stuckPorts hold every attempt to confirm.
type stuckPorts struct {
	noPorts
	held, free chan struct{}
}

func (p stuckPorts) Plugged(ctx context.Context, _ string, _ time.Time, _ string, _ uint64) ([]census.Plugged, error) {
	select {
	case p.held <- struct{}{}:
	default:
	}
	select {
	case <-p.free:
	case <-ctx.Done():
	}
	return nil, ctx.Err()
}

// A Run that hangs in its reading shows no life, nor does one that has not
// begun. One that waits shows it, whatever becomes of its attempts.
func TestAlive(t *testing.T) {
	const short, long = 200 * time.Millisecond, time.Minute
	book := &leash{free: make(chan struct{})}
	ports := stuckPorts{held: make(chan struct{}, 1), free: make(chan struct{})}
	w, real, _ := newWatchdog(t, func(c *Config) {
		book.Book = c.Book.(*netdb.Book)
		c.Book, c.Kernel, c.Timeout = book, ports, time.Hour
	})
	alive := func(d time.Duration) error {
		ctx, cancel := context.WithTimeout(ctx, d)
		defer cancel()
		return w.Alive(ctx)
	}
	if err := alive(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("before Run it says %v", err)
	}
	run, stop := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- w.Run(run) }()
	if err := alive(long); err != nil {
		t.Errorf("while it waits: %v", err)
	}

	l := Reserve(t, real, "a")
	if _, err := real.Bind(ctx, client, l.ID, 0, ipam.Binding{HostInterface: "veth-a"}); err != nil {
		t.Fatal(err)
	}
	if _, err := real.Release(ctx, client, l.ID, "", 0); err != nil {
		t.Fatal(err)
	}
	select {
	case <-ports.held:
	case <-time.After(long):
		t.Fatal("no attempt was made")
	}
	if err := alive(long); err != nil {
		t.Errorf("while an attempt hangs: %v", err)
	}

	book.taut.Store(true)
	if _, err := real.Release(ctx, client, Reserve(t, real, "b").ID, "", 0); err != nil { // it is woken for what is released
		t.Fatal(err)
	}
	realtest.Eventually(t, long, "Run to read the book", book.held.Load)
	if err := alive(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("in a reading that hangs it says %v", err)
	}
	close(book.free)
	if err := alive(long); err != nil {
		t.Errorf("after it: %v", err)
	}
	close(ports.free)
	stop()
	if err := <-done; err != nil {
		t.Errorf("asked to stop, it returned %v", err)
	}
}
