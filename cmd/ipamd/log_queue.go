package main

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// logRoom is how many records wait for a reader of the log that is slow.
	logRoom = 1024
	// logPatience is how long the end of the daemon waits for that reader.
	logPatience = time.Second
)

// A logQueue writes the log in a goroutine of its own. A pipe that nobody reads
// and a journal that does not answer hold up that goroutine, and nobody who logs:
// no request, no commit and no loop. What the queue has no room for is dropped,
// counted, and told of once lines are taken again.
type logQueue struct {
	log     *slog.Logger // writes at once
	records chan queuedRecord
	dropped atomic.Int64
	stop    func()
	stopped chan struct{}
	ended   chan struct{}
}

type queuedRecord struct {
	to     slog.Handler
	record slog.Record
}

// newLogQueue returns the queue, which close ends, and the logger that writes
// through it.
func newLogQueue(log *slog.Logger) (*logQueue, *slog.Logger) {
	q := &logQueue{log: log, records: make(chan queuedRecord, logRoom), stopped: make(chan struct{}), ended: make(chan struct{})}
	q.stop = sync.OnceFunc(func() { close(q.stopped) })
	go q.run()
	return q, slog.New(queueHandler{log.Handler(), q})
}

// close writes what waits, for as long as that takes a reader who reads. What is
// logged afterwards is lost.
func (q *logQueue) close() {
	q.stop()
	select {
	case <-q.ended:
	case <-time.After(logPatience):
	}
}

func (q *logQueue) run() {
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

func (q *logQueue) write(r queuedRecord) {
	// What cannot be written has nobody who could be told.
	_ = r.to.Handle(context.Background(), r.record)
	if n := q.dropped.Swap(0); n > 0 {
		q.log.Warn("the log was not read, and lines are lost", "count", n)
	}
}

// A queueHandler is one logger's way into the queue.
type queueHandler struct {
	slog.Handler
	queue *logQueue
}

func (h queueHandler) Handle(_ context.Context, r slog.Record) error {
	select {
	case h.queue.records <- queuedRecord{h.Handler, r.Clone()}:
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
