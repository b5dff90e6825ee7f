package bridge

import (
	"testing"

	"github.com/ipamd/ipamd/bridge/rtnl"
	"github.com/ipamd/ipamd/internal/nstest"
)

// What a guest adds while Run lists its namespace, and after the kernel has made the
// list, is seen when Run takes that list in: also where a call has taken in the news,
// or listed the namespace, meanwhile.
func TestG1AListForgetsNoNewerNews(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		addresses int
		before    bool // the address was there, and went before the list
	}{
		"a crowded namespace":                            {mostInline + 50, false},
		"an address that a crowded one had a moment ago": {mostInline + 50, true},
		"a small one that was listed often":              {20, false},
	} {
		t.Run(name, func(t *testing.T) {
			const own = "10.8.3.7"
			ns := nstest.New(t)
			ns.Bridge("rt0", "10.8.0.1/16")
			guest := ns.Port("rt0", "10.8.0.8/16")
			guest.NS.Fill(c.addresses, 0)
			v := open(t, ns)
			id := v.portNamed(guest.HostName).space.id
			if c.before {
				guest.AddAddr(own + "/32")
				v.settle()
				guest.DelAddr(own + "/32")
				v.settle()
			}

			ask := func(then func(asked uint32)) {
				if err := v.outside.Ask(t.Context(), func(k *rtnl.Socket) error { then(k.Asked()); return nil }); err != nil {
					t.Error(err)
				}
			}
			done := make(chan error)
			var before uint32
			ask(func(asked uint32) { // as another list that Run makes
				before = asked
				v.mu.Lock()
				v.netns.crowds[id] = true
				v.mu.Unlock()
				go func() { done <- v.readCrowd(t.Context(), id) }()
				for began := false; !began; {
					v.mu.Lock()
					began = !v.netns.crowds[id]
					v.mu.Unlock()
				}
				v.mu.Lock() // as a call
			})
			for listed := false; !listed; {
				ask(func(asked uint32) { listed = asked != before })
			}
			guest.AddAddr(own + "/32")
			if !c.before {
				v.drain()
				if err := v.Bridge.settle(t.Context(), nil); err != nil {
					t.Error(err)
				}
				if !v.seen(own) {
					t.Errorf("%s, which a call received the news of, is not seen", own)
				}
			}
			v.mu.Unlock()
			if err := <-done; err != nil {
				t.Fatal(err)
			}
			if v.settle(); !v.seen(own) {
				t.Errorf("%s, which the guest has, is not seen", own)
			}
		})
	}
}
