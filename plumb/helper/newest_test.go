package helper

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ipamd/ipamd/api"
)

// Of two pieces of work on a port the one that was given first is not done behind the other.
func TestNewest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var n newest
		for _, c := range []struct {
			owner, id string
			passed    bool
		}{
			{"a", "p12", false}, {"a", "p13", false}, {"a", "p12", true}, {"b", "p12", false}, {"a", "p13", false},
			{"a", "odd", false}, {"a", "p2", true},
		} {
			if got := n.passed(c.owner, c.id); got != c.passed {
				t.Errorf("%s of %s: %t", c.id, c.owner, got)
			}
		}
		time.Sleep(time.Hour)
		if n.passed("c", "p1") || n.passed("a", "p1") || len(n.of) != 2 {
			t.Errorf("an hour later: %v", n.of)
		}
	})
}

// reports keeps what is reported to it.
type reports []api.PlumbDoneRequest

func (r *reports) PlumbWork(context.Context, api.PlumbRequest) (*api.PlumbReply, error) {
	return &api.PlumbReply{}, nil
}

func (r *reports) PlumbDone(_ context.Context, done api.PlumbDoneRequest) (*api.PlumbDoneReply, error) {
	*r = append(*r, done)
	return &api.PlumbDoneReply{}, nil
}

// An attach behind a later one is not done. A look into a slot is, as each of many claims wants one.
func TestWhatIsOvertaken(t *testing.T) {
	for verb, overtaken := range map[string]bool{api.PlumbAttach: true, api.PlumbSlotCheck: false} {
		var reply reports
		h := &hand{daemon: &reply, log: slog.New(slog.DiscardHandler), hands: make(chan struct{}, Hands)}
		for _, id := range []string{"p2", "p1"} {
			h.do(t.Context(), &api.PlumbReply{ID: id, Verb: verb, Owner: "o", Netns: "/nowhere"})
		}
		if len(reply) != 2 || (reply[1].Error == errPassed.Error()) != overtaken || reply[0].Error == errPassed.Error() {
			t.Errorf("%s: %+v", verb, reply)
		}
	}
}
