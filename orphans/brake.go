package orphans

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/ipamd/ipamd/ipam"
)

// Within brakeWindow few sandboxes are ended on the owner's word alone: leastEnded
// of them, or shareEnded of all that have containers where that is more. An owner that
// lost its memory, or an impostor in its place, says of all of them that they are gone.
const (
	leastEnded  = 5
	shareEnded  = 0.10
	brakeWindow = time.Hour
)

var (
	errHeld = errors.New("it waits until an operator confirms it")
	errFull = errors.New("as many were ended as may be within an hour: it waits for room, or until an operator confirms it")
)

// A brake lets orphans be ended, few within an hour, however the owner spreads its
// word. More at once than an hour may have are a lie or a mass deletion that failed: none
// of them is ended before a person confirms. Fewer wait for room in the hour, so that a
// slow leak needs no person. Its zero value works; it is not safe for concurrent use.
type brake struct {
	ended     []ipam.Stamp     // when each was let through on the owner's word
	passed    map[string]bool  // of those, sandboxes that are still found: they are tried again
	confirmed map[string]bool  // by a person
	held      map[string]error // by the last sweep, and why
	most      int              // within the window, as of the last sweep
}

// pass divides what a sweep found of so many sandboxes: the names that it may end. One
// that could not be ended is tried again by each sweep and counts once.
func (b *brake) pass(found []suspect, sandboxes int, now ipam.Stamp) map[string]bool {
	there := make(map[string]bool, len(found))
	for _, one := range found {
		there[one.sandbox] = true
	}
	for _, of := range []map[string]bool{b.passed, b.confirmed} {
		maps.DeleteFunc(of, func(name string, _ bool) bool { return !there[name] })
	}
	b.ended = slices.DeleteFunc(b.ended, func(at ipam.Stamp) bool { return now.Since(at) >= brakeWindow })
	b.most = max(leastEnded, int(shareEnded*float64(sandboxes)))
	b.held = make(map[string]error)
	may := make(map[string]bool, len(found))
	var waiting []string
	for _, one := range found {
		if name := one.sandbox; b.confirmed[name] || b.passed[name] {
			may[name] = true
		} else {
			waiting = append(waiting, name)
		}
	}
	for _, name := range waiting {
		switch {
		case len(waiting) > b.most:
			b.held[name] = errHeld
		case len(b.ended) >= b.most:
			b.held[name] = errFull
		default:
			b.ended = append(b.ended, now)
			if b.passed == nil {
				b.passed = make(map[string]bool)
			}
			b.passed[name], may[name] = true, true
		}
	}
	return may
}

// why is what all that the last sweep held wait for: one sweep holds either more than an
// hour may have, or what it has no more room for. nil: none waits.
func (b *brake) why() error {
	for _, err := range b.held {
		return err
	}
	return nil
}

// over ends what was granted to a sandbox: another of its name counts anew.
func (b *brake) over(name string) {
	delete(b.passed, name)
	delete(b.confirmed, name)
}

// confirm lets sandboxes be ended that are held.
func (b *brake) confirm(names []string) {
	for _, name := range names {
		if b.held[name] != nil {
			if b.confirmed == nil {
				b.confirmed = make(map[string]bool)
			}
			b.confirmed[name] = true
		}
	}
}

// HeldSet names the set of those orphans that are held, for [Sweeper.Confirm]: how many
// they are, and a digest of their names. It is "" when none is.
func HeldSet(orphans []Orphan) string {
	var names []string
	for _, o := range orphans {
		if o.Held {
			names = append(names, o.Sandbox)
		}
	}
	if len(names) == 0 {
		return ""
	}
	slices.Sort(names)
	sum := sha256.Sum256([]byte(strings.Join(names, "\x00"))) // no label has a zero byte
	return fmt.Sprintf("%d-%x", len(names), sum[:8])
}
