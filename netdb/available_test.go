package netdb_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/ipamd/ipamd/netdb"
	. "github.com/ipamd/ipamd/netdb/netdbtest"
)

// An address that has rested for long enough is one that can be given: a pool of
// them is not full. Before that the refusal says when the next one will have rested.
func TestAvailableCountsWhatHasRested(t *testing.T) {
	c := NewClock()
	b, p := openWith(t, c, "10.8.64.0/29") // five can be given
	oldest := netdb.Policy{Cooldown: 30 * time.Minute, CooldownMin: 2 * time.Minute}
	strict := netdb.Policy{Cooldown: 30 * time.Minute, CooldownMin: 2 * time.Minute, Strict: true}
	available := func(policy netdb.Policy, want uint64, next time.Duration) {
		t.Helper()
		if n, in := b.Available(p.UID, policy); n != want || in != next {
			t.Errorf("%d available, the next in %s; want %d, %s", n, in, want, next)
		}
	}
	available(strict, 5, 0)
	Cool(t, b, Reserve(t, b, "a"))
	c.Pass(time.Minute)
	Cool(t, b, Reserve(t, b, "b"))
	available(strict, 3, 0)
	for _, name := range []string{"c", "d", "e"} {
		Reserve(t, b, name)
	}
	available(oldest, 0, time.Minute)
	available(strict, 0, 29*time.Minute)
	_, err := TryReserve(b, p, "f", strict)
	var full *netdb.ExhaustedError
	if !errors.As(err, &full) || full.Next != 29*time.Minute || !strings.HasSuffix(err.Error(), "the next address will have cooled in 29m0s") {
		t.Errorf("the refusal is %v, %+v", err, full)
	}
	c.Pass(time.Minute)
	available(oldest, 1, 0)
	c.Pass(time.Minute)
	available(oldest, 2, 0)
	available(strict, 0, 27*time.Minute)
	c.Pass(28 * time.Minute)
	available(strict, 2, 0)
}
