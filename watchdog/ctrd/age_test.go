package ctrd_test

import (
	"testing"
	"time"

	"github.com/ipamd/ipamd/internal/ctrdtest"
)

// A claim is as old as containerd says: the same to a witness that starts
// later, and whatever its task does. A label that is changed makes it younger.
func TestClaimsAge(t *testing.T) {
	ctrdtest.Each(t, func(t *testing.T, d *ctrdtest.Daemon) {
		before := time.Now()
		d.Run(t, ctrdtest.Spec{Namespace: "sandboxes", ID: "a", Labels: map[string]string{ipLabel: "10.8.64.2"}})
		made := time.Now()
		x := look(t, d)
		x.run()
		x.eventually("a to run", func() bool { return len(x.seen("10.8.64.2")) == 1 && x.seen("10.8.64.2")[0].Task == "running" })
		first := x.seen("10.8.64.2")[0].At
		if first.Before(before) || first.After(made) {
			t.Errorf("it claims it since %v, and was made between %v and %v", first, before, made)
		}
		d.StopTask(t, "sandboxes", "a")
		x.eventually("a to stop", func() bool { return x.seen("10.8.64.2")[0].Task == "stopped" })
		d.Restart()
		y := look(t, d)
		if err := y.w.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, w := range []*world{x, y} {
			if at := w.seen("10.8.64.2")[0].At; !at.Equal(first) {
				t.Errorf("it claims it since %v, before: since %v", at, first)
			}
		}
		d.SetLabels(t, "sandboxes", "a", map[string]string{ipLabel: "10.8.64.3"})
		x.eventually("the other address", func() bool { return len(x.seen("10.8.64.3")) == 1 })
		if at := x.seen("10.8.64.3")[0].At; !at.After(made) {
			t.Errorf("it claims the other one since %v, and was made at %v", at, made)
		}
	})
}
