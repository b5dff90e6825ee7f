package readiness

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/netdb"
)

// ours is a book of this runner.
type ours struct{}

func (ours) CheckIdentity() error { return nil }
func (ours) Info() netdb.Info     { return netdb.Info{} }
func (ours) Pools() []*ipam.Pool  { return nil }

// A call waits for the first census for as long as leaves time for what comes behind it.
func TestAwait(t *testing.T) {
	for name, tt := range map[string]struct{ deadline, counted, waits time.Duration }{
		"there already":           {10 * time.Second, 0, 0},
		"there in time":           {10 * time.Second, 7 * time.Second, 7 * time.Second},
		"not there in time":       {10 * time.Second, time.Hour, 8 * time.Second},
		"a call without an end":   {0, time.Hour, startTimeout},
		"a call that is given up": {-2 * time.Second, time.Hour, 2 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := New(Config{Book: ours{}})
				defer time.AfterFunc(tt.counted, r.SetCounted).Stop()
				synctest.Wait()
				ctx := t.Context()
				switch {
				case tt.deadline > 0:
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, tt.deadline)
					defer cancel()
				case tt.deadline < 0:
					var cancel context.CancelFunc
					ctx, cancel = context.WithCancel(ctx)
					defer time.AfterFunc(-tt.deadline, cancel).Stop()
				}
				began := time.Now()
				r.Await(ctx)
				if waited := time.Since(began); waited != tt.waits {
					t.Errorf("it waited %v, want %v", waited, tt.waits)
				}
			})
		})
	}
}
