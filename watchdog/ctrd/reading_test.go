package ctrd_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/internal/ctrdtest"
	"github.com/ipamd/ipamd/watchdog/ctrd"
)

func TestWholeReading(t *testing.T) {
	ctrdtest.Each(t, func(t *testing.T, d *ctrdtest.Daemon) {
		before := time.Now()
		x := look(t, d, func(c *ctrd.Config) { c.Namespaces = []string{"sandboxes", "build"} })
		d.Run(t, ctrdtest.Spec{Namespace: "sandboxes", ID: "app", Labels: map[string]string{
			ownerLabel:       "team/x--y",
			leaseLabel:       "0198-lease",
			ipLabel:          "10.8.64.2",
			ipLabel + "2":    "10.8.64.3/24",
			ipLabel + "10":   "fd00::2/64",
			ipLabel + "11":   "::ffff:10.8.64.3", // .3 once more
			ipLabel + "x":    "10.8.64.90",
			ipLabel + "-old": "10.8.64.91",
			ipLabel + "2x":   "no address, and not asked for",
			"other/ip":       "10.8.64.92",
		}})
		d.Run(t, ctrdtest.Spec{Namespace: "sandboxes", ID: "frozen", Labels: map[string]string{ipLabel: "10.8.64.4"}})
		d.Pause(t, "sandboxes", "frozen")
		d.Run(t, ctrdtest.Spec{Namespace: "build", ID: "over", Labels: map[string]string{ipLabel: "10.8.64.5"}})
		d.StopTask(t, "build", "over")
		d.Create(t, ctrdtest.Spec{Namespace: "build", ID: "app", Labels: map[string]string{ipLabel: "10.8.64.6"}})
		d.Create(t, ctrdtest.Spec{Namespace: "elsewhere", ID: "app", Labels: map[string]string{ipLabel: "10.8.64.7"}})

		if x.silence() != "has not reported yet" {
			t.Errorf("before the first reading: %q", x.silence())
		}
		if err := x.w.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
		if !x.speaks() {
			t.Errorf("silent after a whole reading: %s", x.silence())
		}
		want := map[string]census.Sighting{
			"10.8.64.2": {Namespace: "sandboxes", Container: "app", Sandbox: "team/x--y", LeaseID: "0198-lease", Task: "running"},
			"10.8.64.3": {Namespace: "sandboxes", Container: "app", Sandbox: "team/x--y", LeaseID: "0198-lease", Task: "running"},
			"fd00::2":   {Namespace: "sandboxes", Container: "app", Sandbox: "team/x--y", LeaseID: "0198-lease", Task: "running"},
			"10.8.64.4": {Namespace: "sandboxes", Container: "frozen", Task: "paused"},
			"10.8.64.5": {Namespace: "build", Container: "over", Task: "stopped"},
			"10.8.64.6": {Namespace: "build", Container: "app"},
		}
		for ip, w := range want {
			got := x.seen(ip)
			if len(got) != 1 {
				t.Errorf("%s is seen %d times, want once: %v", ip, len(got), got)
				continue
			}
			w.Witness, w.Addr, w.At, w.TaskAt, w.PID = census.Runtime, got[0].Addr, got[0].At, got[0].TaskAt, got[0].PID
			w.Resumed, w.Began = got[0].Resumed, got[0].Began
			lives := w.Task == "running" || w.Task == "paused"
			if age := time.Since(w.Began); lives && (age <= 0 || age > time.Since(before)+10*time.Millisecond) {
				t.Errorf("%s: its task began %v ago", ip, age)
			}
			if got[0] != w || (w.PID != 0) != lives || w.Began.IsZero() == lives {
				t.Errorf("%s: %+v, want %+v", ip, got[0], w)
			}
		}
		if got := len(x.board.Census().Seen); got != len(want) {
			t.Errorf("%d addresses are seen, want %d: %v", got, len(want), x.board.Census().Seen)
		}
	})
}

func TestAllNamespaces(t *testing.T) {
	ctrdtest.Each(t, func(t *testing.T, d *ctrdtest.Daemon) {
		x := look(t, d, func(c *ctrd.Config) { c.Namespaces = []string{ctrd.AllNamespaces} })
		d.Create(t, ctrdtest.Spec{Namespace: "one", ID: "app", Labels: map[string]string{ipLabel: "10.8.64.2"}})
		x.run()
		x.eventually("the first reading", x.speaks)
		if got := x.by("10.8.64.2"); got != "one/app" {
			t.Errorf(".2 is claimed by %q", got)
		}
		d.Create(t, ctrdtest.Spec{Namespace: "two", ID: "app", Labels: map[string]string{ipLabel: "10.8.64.3"}})
		x.eventually("a container in a namespace that is new", func() bool { return x.by("10.8.64.3") == "two/app" })
	})
}

// C6: what cannot be read of a living container is a silence and hides nothing else;
// it ends when the label is corrected or the container goes, by the event of that.
func TestC6UnreadableLabel(t *testing.T) {
	ctrdtest.Each(t, func(t *testing.T, d *ctrdtest.Daemon) {
		x := look(t, d)
		d.Run(t, ctrdtest.Spec{Namespace: "sandboxes", ID: "good", Labels: map[string]string{ipLabel: "10.8.64.2"}})
		d.Run(t, ctrdtest.Spec{Namespace: "sandboxes", ID: "half", Labels: map[string]string{
			ipLabel: "10.8.64.999", ipLabel + "2": "10.8.64.3",
		}})
		x.run()
		x.eventually("a reading", func() bool { return x.by("10.8.64.2") != "" })
		if got := x.silence(); !strings.Contains(got, "sandboxes/half") || !strings.Contains(got, ipLabel+" = ") {
			t.Errorf("the reason must name container and label: %q", got)
		}
		if x.by("10.8.64.3") != "sandboxes/half" {
			t.Error("the label beside the unreadable one is not seen")
		}

		d.Run(t, ctrdtest.Spec{Namespace: "sandboxes", ID: "worse", Labels: map[string]string{ipLabel: "nowhere"}})
		x.eventually("a second reason", func() bool { return strings.Contains(x.silence(), "sandboxes/worse") })
		d.SetLabels(t, "sandboxes", "half", map[string]string{ipLabel: "10.8.64.9"})
		x.eventually("the repaired label is seen", func() bool { return x.by("10.8.64.9") == "sandboxes/half" })
		if x.speaks() {
			t.Error("the silence ended while one label cannot be read")
		}
		d.Delete(t, "sandboxes", "worse")
		x.eventually("the silence ends with the container", x.speaks)

		d.SetLabels(t, "sandboxes", "good", map[string]string{ipLabel: "not an address"})
		x.eventually("silence by an event", func() bool { return !x.speaks() })
		d.SetLabels(t, "sandboxes", "good", map[string]string{ipLabel: "10.8.64.2"})
		x.eventually("the silence ends with the repair", x.speaks)
		if x.by("10.8.64.2") != "sandboxes/good" {
			t.Error("the repaired container is not seen")
		}
	})
}

func TestNewRefuses(t *testing.T) {
	good := ctrd.Config{
		Address: "/nowhere", Namespaces: []string{"a"},
		OwnerLabel: "o", AddressLabel: "a", LeaseLabel: "l",
		Timeout: time.Second, Board: census.NewBoard(census.Runtime),
	}
	if _, err := ctrd.New(good); err != nil {
		t.Fatalf("a good config: %v", err)
	}
	for name, c := range map[string]struct {
		spoil func(*ctrd.Config)
		says  string
	}{
		"no socket":          {func(c *ctrd.Config) { c.Address = "" }, "socket"},
		"no namespace":       {func(c *ctrd.Config) { c.Namespaces = nil }, "namespace"},
		"empty namespace":    {func(c *ctrd.Config) { c.Namespaces = []string{""} }, "namespace"},
		"namespace and all":  {func(c *ctrd.Config) { c.Namespaces = []string{"a", "*"} }, "alone"},
		"impossible name":    {func(c *ctrd.Config) { c.Namespaces = []string{"a/b"} }, "a/b"},
		"no owner label":     {func(c *ctrd.Config) { c.OwnerLabel = "" }, "label"},
		"no address label":   {func(c *ctrd.Config) { c.AddressLabel = "" }, "label"},
		"no timeout":         {func(c *ctrd.Config) { c.Timeout = 0 }, "timeout"},
		"negative readings":  {func(c *ctrd.Config) { c.Every = -1 }, "negative"},
		"nowhere to post it": {func(c *ctrd.Config) { c.Board = nil }, "board"},
	} {
		t.Run(name, func(t *testing.T) {
			bad := good
			c.spoil(&bad)
			if _, err := ctrd.New(bad); err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %v, want an error about %q", err, c.says)
			}
		})
	}
}

func TestRefreshGivesUp(t *testing.T) {
	x := look(t, ctrdtest.Start(t, ctrdtest.Debian))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := x.w.Refresh(ctx); err == nil {
		t.Error("a cancelled reading succeeded")
	}
	if got := x.silence(); got != "has not reported yet" {
		t.Errorf("a caller who gave up changed the board: %q", got)
	}
	if err := x.w.Close(); err != nil {
		t.Error(err)
	}
	if err := x.w.Refresh(t.Context()); err == nil {
		t.Error("a closed witness reads")
	}
	if err := x.w.Run(t.Context()); err != nil {
		t.Errorf("Run of a closed witness: %v", err)
	}
}
