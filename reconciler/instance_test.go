package reconciler

import (
	"context"
	"errors"
	"testing"
)

// A door is an Instance that another runtime stands before until it is
// accepted.
type door struct{ another, broken error }

func (d *door) Err() error { return d.another }

func (d *door) Accept(context.Context) error {
	if d.broken == nil {
		d.another = nil
	}
	return d.broken
}

// Passes hold what another runtime says is gone, a preview that confirms
// changes nothing, and a pass with an operator's word releases it.
func TestAnotherRuntimeUntilConfirmed(t *testing.T) {
	y := plain(t)
	for _, name := range []string{"A", "B"} {
		y.dog.gone[y.hold(name, "c"+name).ID] = true
	}
	d := &door{another: errors.New("another runtime answers"), broken: errors.New("the disk is full")}
	y.Instance = d
	y.show(container("other"))
	for range 2 {
		y.pass()
		y.minutes(8)
	}
	held := []string{"reap 10.8.64.2 A held", "reap 10.8.64.3 B held"}
	y.pass(held...)
	y.passIn(Mode{Preview: true, Confirm: true}, held...)
	if _, err := y.Pass(ctx, Mode{Confirm: true}); !errors.Is(err, d.broken) {
		t.Errorf("it could not be noted: %v", err)
	}
	y.holds("10.8.64.2 bound A", "10.8.64.3 bound B")
	d.broken = nil
	y.passIn(Mode{Confirm: true}, "reap 10.8.64.2 A done", "reap 10.8.64.3 B done")
}
