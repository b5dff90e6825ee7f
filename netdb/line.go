package netdb

import (
	"slices"
	"sync"
)

// A line holds the requests that wait for a commit, first come, first served.
// A caller waits with each, so that it needs no bound of its own.
type line struct {
	mu  sync.Mutex
	ops []*op
}

func (l *line) join(o *op) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ops = append(l.ops, o)
}

// leave takes a request out whose caller walked away.
func (l *line) leave(o *op) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ops = slices.DeleteFunc(l.ops, func(other *op) bool { return other == o })
}

// next takes up to most requests from the front.
func (l *line) next(most int) []*op {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := min(most, len(l.ops))
	batch := l.ops[:n:n]
	l.ops = l.ops[n:]
	return batch
}
