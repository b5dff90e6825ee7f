package logging

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// written is what a logger behind repeats has written, without times and levels.
func written(l *buffer) string { return strings.TrimSpace(l.String()) }

func newRepeats(r *Repeats) (*slog.Logger, *buffer) {
	out := new(buffer)
	return slog.New(r.Handler(slog.NewTextHandler(out, &slog.HandlerOptions{ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey || a.Key == slog.LevelKey {
			return slog.Attr{}
		}
		return a
	}}))), out
}

// What repeats is reported once, then counted, and the count is reported when the
// minute is over; a minute without it ends it.
func TestRepeatedErrorsAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r Repeats
		log, out := newRepeats(&r)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- r.Run(ctx) }()

		for i := range 1000 {
			log.Warn("release is stuck", "addr", "10.8.64.7", "err", i)
		}
		log.Warn("release is stuck", "addr", "10.8.64.8", "err", "another")
		log.Error("release is stuck", "addr", "10.8.64.7")
		for range 3 {
			log.Info("release is stuck", "addr", "10.8.64.7")
		}
		want := `msg="release is stuck" addr=10.8.64.7 err=0
msg="release is stuck" addr=10.8.64.8 err=another
msg="release is stuck" addr=10.8.64.7
` + strings.TrimSpace(strings.Repeat("msg=\"release is stuck\" addr=10.8.64.7\n", 3))
		if got := written(out); got != want {
			t.Fatalf("at once:\n%s\nwant\n%s", got, want)
		}

		time.Sleep(repeatWindow + repeatTick)
		synctest.Wait()
		want += "\nmsg=\"release is stuck\" addr=10.8.64.7 err=999 repeated=999 within=1m0s"
		if got := written(out); got != want {
			t.Fatalf("after a minute:\n%s", got)
		}
		if len(r.seen) != 1 {
			t.Errorf("%d are remembered, want the one that repeated", len(r.seen))
		}

		log.Warn("release is stuck", "addr", "10.8.64.7", "err", "last")
		cancel()
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
		want += "\nmsg=\"release is stuck\" addr=10.8.64.7 err=last repeated=1 within=10s"
		if got := written(out); got != want {
			t.Fatalf("at the end:\n%s", got)
		}
		r.Flush()
		if len(r.seen) != 0 || written(out) != want {
			t.Errorf("a second end writes more, or remembers %d", len(r.seen))
		}
	})
}

// Lines and counts together are all that was said, however much differs.
func TestNoErrorIsLostToTheBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r Repeats
		log, out := newRepeats(&r)
		const all = 3 * maxRepeats
		for i := range all {
			log.Warn("odd label", "sandbox", i)
		}
		if len(r.seen) > maxRepeats+1 {
			t.Errorf("%d are remembered", len(r.seen))
		}
		log.Warn("another message")
		r.Flush()
		lines := strings.Split(written(out), "\n")
		// Those that found a place, the first that found none, its count, and
		// the other message.
		if len(lines) != maxRepeats+3 {
			t.Errorf("%d lines", len(lines))
		}
		if last := lines[len(lines)-1]; !strings.Contains(last, "sandbox=3071 repeated=2047") {
			t.Errorf("the count is not reported: %s", last)
		}
	})
}

// A logger's own attributes count, and a group's do not.
func TestRepeatsKnowLoggersApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r Repeats
		log, out := newRepeats(&r)
		for range 2 {
			log.With("witness", "netns").Warn("silent")
			log.With("witness", "host").Warn("silent")
			log.WithGroup("peer").Warn("silent", "addr", "10.8.64.7")
			log.WithGroup("peer").Warn("silent", "addr", "10.8.64.8", "err", errors.New("x"))
		}
		want := `msg=silent witness=netns
msg=silent witness=host
msg=silent peer.addr=10.8.64.7`
		if got := written(out); got != want {
			t.Errorf("got\n%s", got)
		}
		r.Flush()
		if got := written(out); strings.Count(got, "\n") != 5 || !strings.Contains(got, "peer.addr=10.8.64.8 peer.err=x peer.repeated=3") {
			t.Errorf("got\n%s", got)
		}
	})
}
