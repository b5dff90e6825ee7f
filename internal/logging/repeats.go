package logging

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	// repeatWindow is the time in which a warning or an error is written once.
	repeatWindow = time.Minute
	// repeatTick is how often the ends of windows are looked for.
	repeatTick = 10 * time.Second
	// maxRepeats bounds what is remembered. Beyond it a message is one,
	// whatever it is about.
	maxRepeats = 1024
)

// identity are the keys that make two lines of one message different ones. What
// else a line has (an error's text, a count) is written with the last of them.
var identity = []string{"addr", "lease", "sandbox", "witness", "pool", "verb", "peer", "row", "bridge"}

// Repeats holds back warnings and errors that repeat within a
// minute, and reports their number when the minute is over, with the text
// of the last one. Nothing is lost: a line is written, or counted in one that is.
type Repeats struct {
	mu   sync.Mutex
	seen map[string]*repeat
}

// A repeat is one line and its window.
type repeat struct {
	begun  time.Time
	count  int // held back in this window
	last   slog.Record
	inside slog.Handler // with the attributes that the last one's logger had
}

// Handler returns one that passes to next what is not held back.
func (r *Repeats) Handler(next slog.Handler) slog.Handler {
	return repeatHandler{Handler: next, repeats: r}
}

// Unfiltered returns a logger that is not held back, for lines that each answer a
// command: a second mistake within a minute is another one.
func (r *Repeats) Unfiltered(log *slog.Logger) *slog.Logger {
	if h, is := log.Handler().(repeatHandler); is {
		return slog.New(h.Handler)
	}
	return log
}

// Run reports the counts as windows end, and all of them when ctx ends. It
// returns nil.
func (r *Repeats) Run(ctx context.Context) error {
	tick := time.NewTicker(repeatTick)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			r.Flush()
			return nil
		case now := <-tick.C:
			r.report(now.Add(-repeatWindow))
		}
	}
}

// Flush reports every count.
func (r *Repeats) Flush() { r.report(time.Now()) }

// report ends the windows that began at until or before.
func (r *Repeats) report(until time.Time) {
	var due []repeat
	now := time.Now()
	r.mu.Lock()
	for key, one := range r.seen {
		switch {
		case one.begun.After(until):
		case one.count == 0:
			delete(r.seen, key)
		default:
			due = append(due, *one)
			one.begun, one.count = now, 0
		}
	}
	r.mu.Unlock()
	slices.SortFunc(due, func(a, b repeat) int { return a.last.Time.Compare(b.last.Time) })
	for _, one := range due {
		one.last.AddAttrs(slog.Int("repeated", one.count), slog.Duration("within", now.Sub(one.begun).Round(time.Second)))
		// There is nowhere left to report that a line cannot be written.
		_ = one.inside.Handle(context.Background(), one.last)
	}
}

// suppress reports whether a record repeats one that was written, and counts it.
func (r *Repeats) suppress(key, message string, rec slog.Record, inside slog.Handler) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.seen == nil {
		r.seen = make(map[string]*repeat)
	}
	one := r.seen[key]
	if one == nil && len(r.seen) >= maxRepeats {
		key = message
		one = r.seen[key]
	}
	if one == nil {
		r.seen[key] = &repeat{begun: time.Now()}
		return false
	}
	one.count++
	one.last, one.inside = rec.Clone(), inside
	return true
}

// A repeatHandler is one logger's way into [Repeats].
type repeatHandler struct {
	slog.Handler
	repeats *Repeats
	with    string // what the logger's own attributes are about
	grouped bool   // its attributes are some group's, and about nothing
}

func (h repeatHandler) Handle(ctx context.Context, r slog.Record) error {
	if r.Level < slog.LevelWarn {
		return h.Handler.Handle(ctx, r)
	}
	message := fmt.Sprintf("%v %s", r.Level, r.Message)
	var key strings.Builder
	key.WriteString(message + h.with)
	r.Attrs(func(a slog.Attr) bool {
		key.WriteString(h.identity(a))
		return true
	})
	if h.repeats.suppress(key.String(), message, r, h.Handler) {
		return nil
	}
	return h.Handler.Handle(ctx, r)
}

func (h repeatHandler) identity(a slog.Attr) string {
	if h.grouped || !slices.Contains(identity, a.Key) {
		return ""
	}
	return fmt.Sprintf(" %s=%q", a.Key, a.Value.Resolve().String())
}

func (h repeatHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	for _, a := range attrs {
		h.with += h.identity(a)
	}
	h.Handler = h.Handler.WithAttrs(attrs)
	return h
}

func (h repeatHandler) WithGroup(name string) slog.Handler {
	h.grouped = h.grouped || name != ""
	h.Handler = h.Handler.WithGroup(name)
	return h
}
