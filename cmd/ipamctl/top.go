package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/client"
	"github.com/ipamd/ipamd/internal/term"
)

// everyLeast keeps top from being a load on the daemon that it looks at.
const everyLeast = 100 * time.Millisecond

// slow is after how long the page says that a question waits.
const slow = time.Second

func topCommand(c *ctl) *cobra.Command {
	every := 2 * time.Second
	cmd := &cobra.Command{
		Use:   "top",
		Short: "The status, live",
		Long: `Shows the status and renews it until q or Ctrl-C; the space bar renews it at
once, Ctrl-Z suspends it. A daemon that does not answer is reported, above what
was known last, and it comes back by itself. The terminal is left as it was.

Where there is no terminal it prints one page, says so, and ends as status does.`,
		Example: "  ipamctl top\n  ipamctl top --every 500ms",
		Args:    nothing,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case every < everyLeast:
				return usageError{message: fmt.Sprintf("--every must be at least %s, not %s", everyLeast, every)}
			case c.quiet || !c.forPeople():
				return usageError{message: "top is for people", hint: "for a program: ipamctl status -o json, ipamctl status -q"}
			case !c.terminal || c.getenv("TERM") == "dumb":
				return c.onePage(cmd, "there is no terminal here")
			}
			st, err := term.OpenScreen()
			if err != nil {
				return c.onePage(cmd, err.Error())
			}
			return c.top(cmd.Context(), st, every)
		},
	}
	cmd.Flags().DurationVar(&every, "every", every, "renew after this `duration`, at least "+everyLeast.String())
	return cmd
}

// onePage is top where nothing can be renewed.
func (c *ctl) onePage(cmd *cobra.Command, why string) error {
	c.note("%s, so this is one page: what ipamctl status prints.", why)
	return c.showStatus(cmd)
}

// A view is what top knows: the last answer, and whether another came since.
type view struct {
	socket string
	every  time.Duration

	status *api.Status // of the last answer; nil before the first
	at     time.Time
	rate   float64   // changes of the book a second, between the last two answers
	lost   error     // why the last question was not answered; nil when it was
	since  time.Time // of the first question in a row that was not
	asked  time.Time // of the question that is under way; zero when none is
}

// An answer is what became of one question.
type answer struct {
	status *api.Status
	err    error
}

// take notes an answer.
func (v *view) take(a answer, now time.Time) {
	v.asked = time.Time{}
	if a.err != nil {
		if v.lost == nil {
			v.since = now
		}
		v.lost = a.err
		return
	}
	v.rate = 0
	if was := v.status; was != nil && was.Epoch == a.status.Epoch && now.After(v.at) {
		v.rate = float64(a.status.Revision-was.Revision) / now.Sub(v.at).Seconds()
	}
	v.status, v.at, v.lost = a.status, now, nil
}

// top holds the terminal until a key or a signal ends it, or ctx. One question
// is under way at most, beside the loop, so that a daemon that hangs does not
// keep a person from leaving.
func (c *ctl) top(ctx context.Context, st *term.Screen, every time.Duration) error {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGWINCH, syscall.SIGCONT, syscall.SIGTSTP, syscall.SIGHUP, syscall.SIGQUIT)
	defer signal.Stop(signals)
	defer st.Close()
	if err := st.Enter(); err != nil {
		return err
	}
	asking, stop := context.WithCancel(ctx)
	ipamd := c.dial(c.socket)
	answers := make(chan answer, 1)
	continued := func() {
		for {
			select {
			case sig := <-signals:
				if sig == syscall.SIGCONT {
					return
				}
			case <-ctx.Done():
				return
			}
		}
	}
	v := &view{socket: c.socket, every: every}
	defer func() {
		stop()
		if !v.asked.IsZero() {
			<-answers
		}
	}()
	ask := func() {
		if v.asked.IsZero() {
			v.asked = c.now()
			go func() { answers <- c.askStatus(asking, ipamd) }()
		}
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	ask()
	for {
		if err := st.Draw(c.drawTop(v, st.Columns, st.Rows)); err != nil {
			return nil // the terminal is gone
		}
		select {
		case <-ctx.Done():
			return nil
		case a := <-answers:
			v.take(a, c.now())
		case <-tick.C:
			ask()
		case key, open := <-st.Keys:
			switch key {
			case 'q', 'Q', term.CtrlC:
				return nil
			case ' ':
				ask()
			case term.CtrlZ:
				if err := st.Suspend(continued); err != nil {
					return err
				}
			default:
				if !open {
					return nil
				}
			}
		case sig := <-signals:
			switch sig {
			case syscall.SIGHUP, syscall.SIGQUIT:
				return nil
			case syscall.SIGTSTP:
				if err := st.Suspend(continued); err != nil {
					return err
				}
			case syscall.SIGCONT: // a shell may have set the terminal its own way
				if err := st.Enter(); err != nil {
					return err
				}
			}
			st.Measure()
		}
	}
}

func (c *ctl) askStatus(ctx context.Context, ipamd *client.Client) answer {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	if err := c.answers(ctx, ipamd); err != nil {
		return answer{nil, err}
	}
	s, err := ipamd.Status(ctx)
	return answer{s, err}
}

// drawTop returns the lines of a screen, no more than rows.
func (c *ctl) drawTop(v *view, columns, rows int) []string {
	p := c.page(columns)
	title := "ipamctl top"
	if v.status != nil && v.lost == nil {
		title += fmt.Sprintf(", %.1f changes/s", v.rate)
	}
	keys := fmt.Sprintf("%s, every %s, q ends", c.now().Format(time.TimeOnly), v.every)
	p.Line("%s%s%s", p.Bold(title), strings.Repeat(" ", max(columns-term.Width(title)-len(keys), 1)), p.Dim(keys))
	switch {
	case v.lost != nil:
		p.Text("", p.Bad(fmt.Sprintf("no answer for %s: %s", term.Span(c.now().Sub(v.since)), term.Sentence(v.lost.Error()))))
		if v.status != nil {
			p.Text("", p.Warn(fmt.Sprintf("below is what was so %s", p.ago(v.at))))
		}
	case v.status == nil:
		p.Line("asking %s", term.Word(v.socket))
	case !v.asked.IsZero() && c.now().Sub(v.asked) > slow:
		p.Text("", p.Warn(fmt.Sprintf("asked %s, and no answer yet; below is what was so then", p.ago(v.asked))))
	}
	if v.status != nil {
		p.Line("")
		p.drawStatus(c.statusAnswer(v.status))
	}
	lines := strings.Split(strings.TrimRight(p.String(), "\n"), "\n")
	if len(lines) > rows {
		hidden := len(lines) - rows + 1
		lines = append(lines[:max(rows-1, 0)], p.Dim(fmt.Sprintf("%d more lines: a taller terminal, or ipamctl status", hidden)))
	}
	return lines
}
