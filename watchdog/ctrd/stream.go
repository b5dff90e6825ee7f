package ctrd

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/events"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/containerd/v2/pkg/protobuf/types"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"github.com/containerd/typeurl/v2"

	"github.com/ipamd/ipamd/internal/broadcast"
	"github.com/ipamd/ipamd/watchdog"

	_ "github.com/containerd/containerd/api/events" // so that typeurl can read them
)

// A container is the name of one.
type container = watchdog.Container

// A stream is a subscription to containerd's events, boiled down to the names
// of the containers to look at again. However many events speak of one, it is
// named once.
//
// A goroutine drains it at all times, also while a reading is under way: an
// undrained subscription hides its own end and fills containerd's memory.
type stream struct {
	wakeup chan struct{} // one slot: there is something to take
	ended  chan struct{} // closed when the stream has ended; err says why
	err    error
	cancel context.CancelFunc

	markTopic string // no other stream has it

	mu       sync.Mutex
	pending  map[container]bool
	all      bool          // an event did not say of which container it speaks
	asked    uint64        // the number of the last mark that was published
	received uint64        // and of the last that came back
	mark     chan struct{} // one slot: a mark came back
}

// subscribe opens a stream of all that may change a claim or a task state.
// That the stream is open does not mean that containerd has begun to fill it:
// [stream.prove] does.
func (w *Witness) subscribe(ctx context.Context, c *containerd.Client) *stream {
	ctx, cancel := context.WithCancel(ctx)
	s := &stream{
		wakeup:    make(chan struct{}, 1),
		ended:     make(chan struct{}),
		cancel:    cancel,
		markTopic: "/ipamd/" + strings.ToLower(rand.Text()) + "/",
		pending:   make(map[container]bool),
		mark:      make(chan struct{}, 1),
	}
	events, errs := c.EventService().Subscribe(ctx, w.filters(s.markTopic)...)
	go s.drain(events, errs)
	return s
}

func (w *Witness) filters(mark string) []string {
	filters := []string{fmt.Sprintf("topic~=%q", "^"+mark)}
	for _, ns := range w.cfg.Namespaces {
		where := ""
		if ns != AllNamespaces {
			where = fmt.Sprintf("namespace==%q,", ns)
		}
		filters = append(filters,
			where+`topic~="^/containers/"`,
			where+`topic~="^/tasks/(create|start|exit|paused|resumed|delete)$"`)
	}
	return filters
}

func (s *stream) drain(events <-chan *events.Envelope, errs <-chan error) {
	defer close(s.ended)
	for {
		select {
		case e := <-events:
			s.note(e)
		case err := <-errs: // closed without a word when it was us who ended it
			if err = errgrpc.ToNative(err); err == nil {
				err = errors.New("closed")
			}
			s.err = fmt.Errorf("event stream: %w", err)
			return
		}
	}
}

// close ends the stream and waits until nothing of it runs.
func (s *stream) close() {
	s.cancel()
	<-s.ended
}

func (s *stream) note(e *events.Envelope) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if number, ok := strings.CutPrefix(e.Topic, s.markTopic); ok {
		n, _ := strconv.ParseUint(number, 10, 64)
		s.received = max(s.received, n)
		broadcast.Wake(s.mark)
		return
	}
	if id := containerID(e.Event); id != "" {
		s.pending[container{Namespace: e.Namespace, ID: id}] = true
	} else {
		s.all = true
	}
	broadcast.Wake(s.wakeup)
}

// containerID returns of which container an event speaks, "" when it does not
// say.
func containerID(event typeurl.Any) string {
	if event == nil {
		return ""
	}
	v, err := typeurl.UnmarshalAny(event)
	if err != nil {
		return ""
	}
	switch e := v.(type) {
	case interface{ GetContainerID() string }: // tasks; their GetID may name an exec
		return e.GetContainerID()
	case interface{ GetID() string }: // containers
		return e.GetID()
	}
	return ""
}

// take empties the stream's list of containers to look at; all says to look at
// everything.
func (s *stream) take() (at []container, all bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.pending {
		at = append(at, c)
	}
	all = s.all
	clear(s.pending)
	s.all = false
	return at, all
}

// prove returns when a mark that it publishes comes back, which shows that
// the stream is alive and that every event before has been noted. An event
// from before containerd has taken up a subscription is lost, and nothing
// else reports when it has: hence also the publishing again.
func (s *stream) prove(ctx context.Context, c *containerd.Client) error {
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	s.mu.Lock()
	first := s.asked + 1
	s.mu.Unlock()
	for {
		if err := s.publish(ctx, c); err != nil {
			return err
		}
		for waiting := true; waiting; {
			select {
			case <-s.mark:
				s.mu.Lock()
				back := s.received >= first
				s.mu.Unlock()
				if back {
					return nil
				}
			case <-again.C:
				waiting = false
			case <-s.ended:
				return s.err
			case <-ctx.Done():
				return fmt.Errorf("mark the event stream: no mark comes back: %w", ctx.Err())
			}
		}
	}
}

func (s *stream) publish(ctx context.Context, c *containerd.Client) error {
	s.mu.Lock()
	s.asked++
	topic := s.markTopic + strconv.FormatUint(s.asked, 10)
	s.mu.Unlock()
	ctx = namespaces.WithNamespace(ctx, "ipamd")
	if err := c.EventService().Publish(ctx, topic, &types.Empty{}); err != nil {
		return fmt.Errorf("mark the event stream: %w", err)
	}
	return nil
}
