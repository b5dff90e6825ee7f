package watchdog_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/ipamd/ipamd/internal/ctrdtest"
	"github.com/ipamd/ipamd/internal/ownertest"
	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/orphans"
	"github.com/ipamd/ipamd/watchdog"
	"github.com/ipamd/ipamd/watchdog/owner"
)

// The sweep for orphans runs by itself, and what it released is confirmed by the
// watchdog: the containers are gone, and so is the port.
func TestAnOrphansAddressCools(t *testing.T) {
	ctrdtest.One(t, func(t *testing.T, d *ctrdtest.Daemon) {
		o := ownertest.Start(t)
		o.Set("valid", "bystander")
		client, err := owner.New(owner.Config{Socket: o.Socket, Timeout: soon})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { client.Close() })
		s := newScene(t, d, func(c *watchdog.Config) { c.Owner = client })
		a := s.plugged("a", "c1", "c2")
		other := s.plugged("bystander", "c3")
		sweeper, err := orphans.New(orphans.Config{
			Owner: client, Runtime: s.runtime, Book: s.book, Board: s.board, Awaited: func(string) bool { return false },
			Every: 20 * time.Millisecond, Grace: time.Nanosecond, Parallel: 4,
			Remove: true, KillWait: 50 * time.Millisecond, Timeout: soon, Now: ipam.Now,
		})
		s.check(err)
		s.run(sweeper.Run)
		s.eventually("its containers are removed and its lease released", func() bool {
			l := s.now(a)
			return l.State == ipam.Releasing || l.State == ipam.Cooling
		})
		left, err := s.runtime.List(ctx)
		s.check(err)
		if len(left) != 1 || left[0].ID != "c3" {
			t.Errorf("released while there are %s", fmt.Sprint(left))
		}
		a.port.Close()
		s.cools(a)
		if l := s.now(other); l.State != ipam.Bound {
			t.Errorf("another's lease is %s", l.State)
		}
	})
}
