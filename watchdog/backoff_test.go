package watchdog

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// answers is an owner that has one answer.
type answers struct {
	err   error
	asked int
}

func (a *answers) List(context.Context) ([]Owned, error) { return nil, nil }

func (a *answers) Look(context.Context, string) (Verdict, error) {
	a.asked++
	return Gone, a.err
}

// An owner that left a question unanswered is not asked for a while; an
// answer that cannot be understood is an answer.
func TestOwnerBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r OwnerBackoff
		o := &answers{err: errBroken}
		for range 3 {
			if _, err := r.Look(ctx, o, "a"); !errors.Is(err, errBroken) {
				t.Errorf("it answered %v", err)
			}
		}
		o.err = fmt.Errorf("ask: %w", context.DeadlineExceeded)
		for range 3 {
			if v, err := r.Look(ctx, o, "a"); err == nil || o.asked != 4 || errors.Is(err, errPaused) && v != Unknown {
				t.Errorf("asked %d times, the last answer %v, %v", o.asked, v, err)
			}
		}
		o.err = nil
		time.Sleep(ownerPause)
		if v, err := r.Look(ctx, o, "a"); v != Gone || err != nil || o.asked != 5 {
			t.Errorf("after the pause: %v, %v, asked %d times", v, err, o.asked)
		}
	})
}
