package enforce

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/ipamd/ipamd/internal/nstest"
)

// An unlearning one notes at which ports the bridge was asked to forget what it has learned.
type unlearning struct {
	one
	at   []int
	fail error
}

func (w *unlearning) Unlearn(_ context.Context, index int) error {
	if w.fail == nil {
		w.at = append(w.at, index)
	}
	return w.fail
}

// TestE1APortThatWasInNoSetIsUnlearned: once a port is in a set, the bridge forgets what it has
// learned there before: of one plugged while the daemon runs, or while none did; of all where
// another program took the table away. Of a port whose rules were there all the while it is
// not asked to.
func TestE1APortThatWasInNoSetIsUnlearned(t *testing.T) {
	t.Parallel()
	for _, mode := range []Mode{Enforce, Observe} {
		w, ns := new(unlearning), nstest.New(t)
		var k *Keeper
		open := func() {
			t.Helper()
			if k != nil {
				_ = k.Close()
			}
			var err error
			ns.Do(func() {
				k, err = Open(t.Context(), Config{Policy: Policy{Mode: mode}, Book: w, Kernel: w, Boot: "boot", Every: time.Hour, Log: slog.New(slog.DiscardHandler)})
			})
			if err == nil {
				err = k.Start(t.Context())
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		want := func(what string, ports ...int) {
			t.Helper()
			if mode == Observe {
				ports = nil
			}
			if slices.Sort(w.at); !slices.Equal(w.at, ports) {
				t.Errorf("%s: %s: %v, want %v", mode, what, w.at, ports)
			}
			w.at = nil
		}
		follow := func() {
			t.Helper()
			if err := errors.Join(k.followPorts(t.Context()), k.follow(t.Context())); err != nil {
				t.Fatal(err)
			}
		}
		w.bind("a")
		first, second, third := w.ports[0].Index, 80_002, 80_003
		open()
		want("the first start", first)
		follow()
		want("nothing new")
		w.ports = append(w.ports, Port{Index: second, Name: "second"})
		follow()
		want("plugged while it runs", second)
		w.ports = append(w.ports, Port{Index: third, Name: "third"})
		open()
		want("plugged while none ran", third)
		t.Cleanup(func() { _ = k.Close() })
		ns.Exec("nft", "delete", "table", "bridge", TableName)
		k.unverified.Store(true)
		follow()
		want("the table was away", first, second, third)
		w.ports, w.fail = append(w.ports, Port{Index: 80_004, Name: "fourth"}), errors.New("no memory")
		if err := k.followPorts(t.Context()); mode == Enforce && !errors.Is(err, ErrNotHeld) {
			t.Errorf("it cannot forget, and the rules are held: %v", err)
		}
		w.fail = nil
		follow()
		want("after an error", 80_004)
	}
}
