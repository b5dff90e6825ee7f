package netdb_test

import (
	"testing"

	"github.com/ipamd/ipamd/netdb"
	. "github.com/ipamd/ipamd/netdb/netdbtest"
)

// Who waits for some states is woken by a commit that touches one of them, and by no
// other; who waits for any commit, by each.
func TestACommitWakesWhoWaitsForIt(t *testing.T) {
	b := Open(t)
	var l *netdb.Lease
	for _, step := range []struct {
		name  string
		do    func()
		wakes string // of b(ound), r(eleasing), f(ree)
	}{
		{"allocate", func() { l = Reserve(t, b, "a") }, "f"},
		{"bind", func() { l, _ = b.Bind(ctx, client, l.ID, 0, netdb.Binding{Netns: "/a"}) }, "b"},
		{"bind again, which commits nothing", func() { l, _ = b.Bind(ctx, client, l.ID, 0, netdb.Binding{Netns: "/a"}) }, "-"},
		{"release", func() { l, _ = b.Release(ctx, client, l.ID, "", 0) }, "br"},
		{"confirm", func() { l, _ = b.Confirm(ctx, watchdog, l.ID, l.Rev, nil) }, "r"},
		{"a pool", func() { Pool(t, b, "other", "10.8.65.0/24") }, ""},
	} {
		waiting := map[byte]<-chan struct{}{'b': b.Touched(netdb.Bound), 'r': b.Touched(netdb.Releasing), 'f': b.Touched(netdb.Free), '*': b.Changed()}
		step.do()
		want := map[byte]bool{'*': step.wakes != "-"}
		for _, s := range []byte(step.wakes) {
			want[s] = true
		}
		for s, ch := range waiting {
			select {
			case <-ch:
				if !want[s] {
					t.Errorf("%s wakes who waits for %c", step.name, s)
				}
			default:
				if want[s] {
					t.Errorf("%s does not wake who waits for %c", step.name, s)
				}
			}
		}
	}
	select {
	case <-b.Touched(netdb.Bound, netdb.Paused):
		t.Error("woken before any commit")
	default:
	}
}
