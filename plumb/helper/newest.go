package helper

import (
	"errors"
	"maps"
	"strconv"
	"strings"
	"sync"
	"time"
)

// errPassed is what is reported of a piece of work that a later one has overtaken.
var errPassed = errors.New("a later call for this port was begun meanwhile")

// newest knows the last attach or detach that was begun on each owner's port. The daemon gives one
// after the other, the next one only when the caller of the one before has its answer or has left.
// What is behind a later one would make the port as it shall be no more. Work on a warm slot is not
// of this kind: many calls may have one slot looked at.
type newest struct {
	mu sync.Mutex
	of map[string]begun
}

type begun struct {
	number int64
	at     time.Time
}

// passed notes a piece of work that begins, and reports that a later one has begun before it.
func (n *newest) passed(owner, id string) bool {
	number, err := strconv.ParseInt(strings.TrimLeft(id, "abcdefghijklmnopqrstuvwxyz-"), 10, 64)
	if err != nil {
		return false
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	now := time.Now()
	maps.DeleteFunc(n.of, func(_ string, b begun) bool { return now.Sub(b.at) > 2*patience }) // what was with a hand then has ended
	if n.of == nil {
		n.of = make(map[string]begun)
	}
	if number < n.of[owner].number {
		return true
	}
	n.of[owner] = begun{number, now}
	return false
}
