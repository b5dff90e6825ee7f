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
	for name, tt := range map[string]struct{ deadline, counted, stopped, waits time.Duration }{
		"there already":                         {10 * time.Second, 0, time.Hour, 0},
		"there in time":                         {10 * time.Second, 7 * time.Second, time.Hour, 7 * time.Second},
		"not there in time":                     {10 * time.Second, time.Hour, time.Hour, 8 * time.Second},
		"a call with much time":                 {time.Minute, time.Hour, time.Hour, startTimeout},
		"a call without an end":                 {0, time.Hour, time.Hour, startTimeout},
		"a call that is given up":               {-2 * time.Second, time.Hour, time.Hour, 2 * time.Second},
		"a daemon that stops":                   {10 * time.Second, time.Hour, time.Second, time.Second + stopTimeout},
		"a daemon that stops late":              {10 * time.Second, time.Hour, 7 * time.Second, 8 * time.Second},
		"there in time for a daemon that stops": {10 * time.Second, 3 * time.Second, time.Second, 3 * time.Second},
		"a daemon that has stopped":             {10 * time.Second, time.Hour, 0, stopTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				stopping, stop := context.WithCancel(t.Context())
				defer time.AfterFunc(tt.stopped, stop).Stop()
				r := New(Config{Book: ours{}, Stopping: stopping})
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
