package watchdog

import "errors"

// A sweep ends few sandboxes on the owner's word alone: leastEnded of them, or
// shareEnded of all that have containers where that is more. An owner that lost its
// memory, or somebody in its place, says of all of them that they are gone.
const (
	leastEnded = 5
	shareEnded = 0.10
)

var errHeld = errors.New("it waits until an operator confirms it")

// A brake lets orphans be ended, few at a time. What it holds waits for a person:
// later sweeps end none of it. Its zero value works; it is not safe for concurrent use.
type brake struct {
	ended     map[string]bool // sandboxes that were let through, in sweeps that went on finding more
	confirmed map[string]bool // by a person
	held      map[string]bool // by the last sweep
	most      int             // that this one ends
}

// pass divides what a sweep found of so many sandboxes: the names that it may end. One
// that could not be ended is tried again by each sweep and counts once.
func (b *brake) pass(found []suspect, sandboxes int) map[string]bool {
	there := make(map[string]bool, len(found))
	fresh := 0
	for _, one := range found {
		there[one.sandbox] = true
		if !b.ended[one.sandbox] {
			fresh++
		}
	}
	ended, confirmed := make(map[string]bool), make(map[string]bool)
	for name := range b.ended {
		if there[name] || fresh > 0 {
			ended[name] = true
		}
	}
	for name := range b.confirmed {
		if there[name] {
			confirmed[name] = true
		}
	}
	b.ended, b.confirmed, b.held = ended, confirmed, make(map[string]bool)
	b.most = max(leastEnded, int(shareEnded*float64(sandboxes)))
	may := make(map[string]bool, len(found))
	for _, one := range found {
		switch name := one.sandbox; {
		case b.confirmed[name] || b.ended[name]:
			may[name] = true
		case len(b.ended) < b.most:
			b.ended[name], may[name] = true, true
		default:
			b.held[name] = true
		}
	}
	return may
}

// confirm lets sandboxes be ended that are held.
func (b *brake) confirm(names []string) {
	for _, name := range names {
		if b.held[name] {
			b.confirmed[name] = true
		}
	}
}
