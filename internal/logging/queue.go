package logging

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// queueSize is how many records wait for a reader of the log that is slow.
	queueSize = 1024
	// closeTimeout is how long the end of the daemon waits for that reader.
	closeTimeout = time.Second
)

// A Queue writes the log in a goroutine of its own. A pipe that is not read
// and a journal that does not answer hold up that goroutine only:
// no request, no commit and no loop. What the queue has no room for is dropped,
// counted, and reported once lines are taken again.
type Queue struct {
	log     *slog.Logger // writes at once
	records chan queued
	dropped atomic.Int64
	stop    func()
	stopped chan struct{}
	ended   chan struct{}
}

type queued struct {
	to     slog.Handler
	record slog.Record
}

// NewQueue returns the queue, which Close ends, and the logger that writes
// through it.
func NewQueue(log *slog.Logger) (*Queue, *slog.Logger) {
	q := &Queue{log: log, records: make(chan queued, queueSize), stopped: make(chan struct{}), ended: make(chan struct{})}
	q.stop = sync.OnceFunc(func() { close(q.stopped) })
	go q.run()
	return q, slog.New(queueHandler{log.Handler(), q})
}

// Close writes what waits, at most one second. What is
// logged afterwards is lost.
func (q *Queue) Close() {
	q.stop()
	select {
	case <-q.ended:
	case <-time.After(closeTimeout):
	}
}

func (q *Queue) run() {
	defer close(q.ended)
	for {
		select {
		case r := <-q.records:
			q.write(r)
			continue
		default:
		}
		select {
		case r := <-q.records:
			q.write(r)
		case <-q.stopped:
			if len(q.records) == 0 {
				return
			}
		}
	}
}

func (q *Queue) write(r queued) {
	// There is nowhere left to report that a line cannot be written.
	_ = r.to.Handle(context.Background(), r.record)
	if n := q.dropped.Swap(0); n > 0 {
		q.log.Warn("the log was not read, and lines are lost", "count", n)
	}
}

// A queueHandler is one logger's way into the queue.
type queueHandler struct {
	slog.Handler
	queue *Queue
}

func (h queueHandler) Handle(_ context.Context, r slog.Record) error {
	select {
	case h.queue.records <- queued{h.Handler, r.Clone()}:
	default:
		h.queue.dropped.Add(1)
	}
	return nil
}

func (h queueHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return queueHandler{h.Handler.WithAttrs(attrs), h.queue}
}

func (h queueHandler) WithGroup(name string) slog.Handler {
	return queueHandler{h.Handler.WithGroup(name), h.queue}
}
