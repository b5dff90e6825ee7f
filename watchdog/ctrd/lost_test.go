package ctrd_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ipamd/ipamd/internal/ctrdtest"
	"github.com/ipamd/ipamd/watchdog/ctrd"
)

// containerd is killed: the witness is silent, what it saw stands, and after
// the restart it sees all that is there, and nothing that went meanwhile.
func TestKilledAndBack(t *testing.T) {
	ctrdtest.Each(t, func(t *testing.T, d *ctrdtest.Daemon) {
		x := look(t, d)
		const n = 5
		ip := func(i int) string { return fmt.Sprintf("10.8.64.%d", i+2) }
		for i := range n {
			d.Run(t, ctrdtest.Spec{Namespace: "sandboxes", ID: fmt.Sprint("c", i), Labels: map[string]string{ipLabel: ip(i)}})
		}
		x.run()
		x.eventually("the first reading", x.speaks)

		for range 3 {
			d.Kill9()
			x.eventually("silence", func() bool { return !x.speaks() })
			for i := range n {
				if x.by(ip(i)) == "" {
					t.Errorf("%s went unseen because containerd did not answer", ip(i))
				}
			}
			if err := x.w.Refresh(t.Context()); err == nil || strings.Contains(err.Error(), "transport") {
				t.Error("Refresh read a containerd that is dead")
			}
			d.Restart()
			back := time.Now()
			x.eventually("a reading after the restart", x.speaks)
			t.Logf("read %v after it served again", time.Since(back))
			for i := range n {
				if x.by(ip(i)) == "" {
					t.Errorf("%s is not seen after the restart", ip(i))
				}
			}
		}
		d.Delete(t, "sandboxes", "c0")
		x.eventually("events flow again", func() bool { return x.by(ip(0)) == "" })
	})
}

// A container that is deleted while it is not followed is gone in the reading
// after, and only then.
func TestDownAtStart(t *testing.T) {
	ctrdtest.Each(t, func(t *testing.T, d *ctrdtest.Daemon) {
		x := look(t, d)
		x.container("app", "10.8.64.2")
		d.Stop()
		x.run()
		x.eventually("an attempt", func() bool { s := x.silence(); return s != "" && s != "has not reported yet" })
		if x.by("10.8.64.2") != "" {
			t.Error("seen without asking")
		}
		if reply := x.silence(); !strings.HasPrefix(reply, "containerd does not answer at "+d.Address+": ") || strings.Contains(reply, "transport") {
			t.Errorf("it is silent because %q", reply)
		}
		d.Restart()
		x.eventually("the first reading", x.speaks)
		if x.by("10.8.64.2") != "sandboxes/app" {
			t.Error("not seen in the first reading")
		}
	})
}

// A containerd that accepts and does not answer is lost within the timeout,
// and does not hang anybody.
func TestFrozen(t *testing.T) {
	ctrdtest.Each(t, func(t *testing.T, d *ctrdtest.Daemon) {
		x := look(t, d, func(c *ctrd.Config) { c.Timeout, c.Every = 300*time.Millisecond, 50*time.Millisecond })
		x.container("app", "10.8.64.2")
		x.run()
		x.eventually("the first reading", x.speaks)

		d.Freeze()
		begin := time.Now()
		x.eventually("silence", func() bool { return !x.speaks() })
		t.Logf("silent after %v, because: %s", time.Since(begin), x.silence())
		if x.by("10.8.64.2") == "" {
			t.Error(".2 went unseen because containerd did not answer")
		}
		begin = time.Now()
		if err := x.w.Refresh(t.Context()); err == nil {
			t.Error("Refresh read a containerd that is frozen")
		}
		if took := time.Since(begin); took > soon/2 {
			t.Errorf("Refresh hung for %v", took)
		}

		d.Thaw()
		x.eventually("a reading after the thaw", x.speaks)
		d.Delete(t, "sandboxes", "app")
		x.eventually("unseen", func() bool { return x.by("10.8.64.2") == "" })
	})
}

// A frozen shim hides its own task's state, and no claim: neither its own
// container's nor anybody else's. G7: it does not read as a container without a task,
// though containerd's list of tasks leaves it out; a record without one does.
func TestFrozenShim(t *testing.T) {
	ctrdtest.Each(t, func(t *testing.T, d *ctrdtest.Daemon) {
		x := look(t, d)
		d.Run(t, ctrdtest.Spec{Namespace: "sandboxes", ID: "stuck", Labels: map[string]string{ipLabel: "10.8.64.2"}})
		d.Run(t, ctrdtest.Spec{Namespace: "sandboxes", ID: "well", Labels: map[string]string{ipLabel: "10.8.64.3"}})
		x.container("record", "10.8.64.4")
		d.FreezeShim(t, "sandboxes", "stuck")

		// containerd gives each shim two seconds, and the well one may not have
		// answered by then on a machine that stands still.
		x.eventually("the other task's state is read", func() bool {
			begin := time.Now()
			if err := x.w.Refresh(t.Context()); err != nil {
				t.Fatal(err)
			}
			t.Logf("read in %v", time.Since(begin))
			if !x.speaks() {
				t.Errorf("silent: %s", x.silence())
			}
			stuck, well := x.seen("10.8.64.2"), x.seen("10.8.64.3")
			if len(stuck) != 1 || stuck[0].Task != "" || stuck[0].Note == "" || len(well) != 1 {
				t.Fatalf("seen are %+v and %+v, want one claim each, the first with a task of which nothing is known", stuck, well)
			}
			record := x.seen("10.8.64.4")
			return well[0].Task == "running" && len(record) == 1 && record[0].Task == "" && record[0].Note == ""
		})
	})
}
