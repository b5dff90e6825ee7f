package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/ipamd/ipamd/internal/term"
)

// A line that is gone at once is not read, nor is a tenth of a second.
const (
	progressAfter = 500 * time.Millisecond
	progressEvery = time.Second
)

// progress shows a person on a terminal what takes so long, and for how long,
// until the returned function is called; that wipes the line. A pipe, -q and
// a terminal that cannot go back to the start of its line get nothing.
func (c *ctl) progress(doing string) (stop func()) {
	if !c.watched || c.quiet || c.getenv("TERM") == "dumb" {
		return func() {}
	}
	quit, done := make(chan struct{}), make(chan struct{})
	go func() { // the call itself has the caller's goroutine; stop waits for this one
		defer close(done)
		began, width := c.now(), 0
		tick := time.NewTimer(progressAfter)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				line := fmt.Sprintf("%s, %s", doing, term.Span(c.now().Sub(began)))
				fmt.Fprintf(c.err, "\r%-*s", width, line)
				width = max(width, len(line))
				tick.Reset(progressEvery)
			case <-quit:
				if width > 0 {
					fmt.Fprintf(c.err, "\r%s\r", strings.Repeat(" ", width))
				}
				return
			}
		}
	}()
	return func() { close(quit); <-done }
}
