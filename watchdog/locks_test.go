package watchdog

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/internal/realtest"
	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/netdb"
	. "github.com/ipamd/ipamd/netdb/netdbtest"
)

// hungPorts have one port, that is moved, and then do not say which there are.
type hungPorts struct {
	noPorts
	asked, free chan struct{}
}

func (p hungPorts) Plugged(context.Context, string, time.Time, string, uint64) ([]census.Plugged, error) {
	return []census.Plugged{{Port: "veth-a", Bridge: "rt0"}}, nil
}

func (p hungPorts) PortNames() map[string]bool {
	select {
	case p.asked <- struct{}{}:
	default:
	}
	<-p.free
	return map[string]bool{"veth-a": true}
}

// A bridge that hangs holds up none but the loop that asks it: releases are
// answered, by what is on record.
func TestF11ABridgeThatHangsHoldsUpNoRelease(t *testing.T) {
	ports := hungPorts{asked: make(chan struct{}, 1), free: make(chan struct{})}
	moved := make(chan struct{})
	news := make(chan (<-chan struct{}), 1)
	news <- moved
	w, book, _ := newWatchdog(t, func(c *Config) {
		c.Kernel = ports
		c.PortsChanged = func() <-chan struct{} {
			select {
			case once := <-news:
				return once
			default:
				return nil
			}
		}
	})
	l := Reserve(t, book, "a")
	if _, err := book.Bind(ctx, client, l.ID, 0, ipam.Binding{HostInterface: "veth-a"}); err != nil {
		t.Fatal(err)
	}
	run, stop := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- w.Run(run) }()
	released, _, err := w.Release(ctx, client, l.ID, "", 0)
	if err != nil || released.State != ipam.Releasing {
		t.Fatalf("released to %+v, %v", released, err)
	}
	realtest.Eventually(t, time.Minute, "its port to keep it", func() bool { return w.Blocked()[KindPort] == 1 })
	close(moved)
	<-ports.asked

	answered := make(chan []Blocker, 1)
	go func() { answered <- w.Blockers(released) }()
	select {
	case got := <-answered:
		if len(got) != 1 || got[0].Kind != KindPort {
			t.Errorf("it is blocked by %+v", got)
		}
	case <-time.After(time.Minute):
		t.Error("while the bridge hangs it is not answered what blocks a lease")
	}
	close(ports.free)
	stop()
	if err := <-done; err != nil {
		t.Errorf("asked to stop, it returned %v", err)
	}
}

// slowBook takes its time to note a runtime.
type slowBook struct {
	*netdb.Book
	asked, free chan struct{}
}

func (b slowBook) NoteRuntime(context.Context, ipam.Who, string, bool) error {
	close(b.asked)
	<-b.free
	return netdb.ErrReadOnly
}

// A disk that hangs while another runtime is noted holds up no pass and no
// doctor, who ask which one is believed.
func TestF11ADiskThatHangsHoldsUpNoPass(t *testing.T) {
	book := slowBook{Open(t), make(chan struct{}), make(chan struct{})}
	i := NewInstance(book, census.NewBoard(census.Runtime), slog.New(slog.DiscardHandler))
	done := make(chan error, 1)
	go func() { done <- i.Meet(ctx, "other") }()
	<-book.asked
	answered := make(chan error, 1)
	go func() { answered <- i.Err() }()
	select {
	case err := <-answered:
		if err != nil {
			t.Errorf("none was refused, yet: %v", err)
		}
	case <-time.After(time.Minute):
		t.Error("while the disk hangs it is not answered which runtime is believed")
	}
	close(book.free)
	if err := <-done; !errors.Is(err, netdb.ErrReadOnly) {
		t.Errorf("met: %v", err)
	}
}
