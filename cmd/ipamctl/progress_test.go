package main

import (
	"bytes"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A person on a terminal sees for how long a pass runs, and nothing of it
// once it is over.
func TestProgress(t *testing.T) {
	for name, c := range map[string]struct {
		takes   time.Duration
		watched bool
		quiet   bool
		term    string
		says    []string // in this order
	}{
		"a long pass":     {takes: 61 * time.Second, watched: true, says: []string{"comparing, 0s", "comparing, 1s", "comparing, 59s", "comparing, 1m0s"}},
		"a short one":     {takes: progressAfter / 2, watched: true},
		"into a pipe":     {takes: time.Minute},
		"with -q":         {takes: time.Minute, watched: true, quiet: true},
		"a dumb terminal": {takes: time.Minute, watched: true, term: "dumb"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var out bytes.Buffer
				ctl := &ctl{quiet: c.quiet, streams: streams{err: &out, watched: c.watched, now: time.Now,
					getenv: func(key string) string { return map[string]string{"TERM": c.term}[key] }}}
				stop := ctl.progress("comparing")
				<-time.After(c.takes)
				stop()
				rest := out.String()
				for _, want := range c.says {
					_, after, found := strings.Cut(rest, "\r"+want)
					if !found {
						t.Fatalf("no %q in %q", want, out.String())
					}
					rest = after
				}
				if len(c.says) == 0 && out.Len() > 0 {
					t.Errorf("said %q", out.String())
				}
				if strings.Contains(out.String(), "\x1b") {
					t.Errorf("an escape code: %q", out.String())
				}
				if got := shownAfter(out.String()); got != "" {
					t.Errorf("%q is left on the line", got)
				}
			})
		})
	}
}

// shownAfter is what a terminal shows of text without a line feed: a carriage
// return goes back, and what follows covers what was there.
func shownAfter(text string) string {
	var line []byte
	at := 0
	for _, b := range []byte(text) {
		if b == '\r' {
			at = 0
			continue
		}
		if at == len(line) {
			line = append(line, b)
		}
		line[at] = b
		at++
	}
	return strings.TrimRight(string(line), " ")
}
