package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	"golang.org/x/term"
)

// A teller writes the story: what is done, why, the commands with their
// output, and what was checked.
type teller struct {
	out    *os.File
	colour bool
	begun  time.Time
	act    int
	checks int
}

func newTeller(out *os.File) *teller {
	return &teller{
		out:    out,
		colour: term.IsTerminal(int(out.Fd())) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb",
		begun:  time.Now(),
	}
}

func (t *teller) paint(sgr, text string) string {
	if !t.colour {
		return text
	}
	return "\x1b[" + sgr + "m" + text + "\x1b[0m"
}

// title begins an act.
func (t *teller) title(format string, args ...any) {
	t.act++
	fmt.Fprintf(t.out, "\n%s\n", t.paint("1", fmt.Sprintf("%d. %s", t.act, fmt.Sprintf(format, args...))))
}

// say is a sentence of the story.
func (t *teller) say(format string, args ...any) {
	fmt.Fprintf(t.out, "   "+format+"\n", args...)
}

// holds ends the story unless a claim is true, and says so when it is.
func (t *teller) holds(ok bool, format string, args ...any) error {
	claim := fmt.Sprintf(format, args...)
	if !ok {
		return fmt.Errorf("this does not hold: %s", claim)
	}
	t.checks++
	fmt.Fprintf(t.out, "   %s %s\n", t.paint("32", "checked:"), claim)
	return nil
}

// run shows a command and its output, and returns the output too.
func (t *teller) run(ctx context.Context, command ...string) (string, error) {
	var kept strings.Builder
	err := t.do(ctx, io.MultiWriter(t.out, &kept), command)
	return kept.String(), err
}

// show is run for a program that looks whether it writes to a terminal.
func (t *teller) show(ctx context.Context, command ...string) error {
	return t.do(ctx, t.out, command)
}

func (t *teller) do(ctx context.Context, out io.Writer, command []string) error {
	fmt.Fprintf(t.out, "\n%s\n", t.paint("36", "$ "+spell(command)))
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Stdout, cmd.Stderr = out, t.out
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w", spell(command), err)
	}
	return nil
}

// spell writes a command as a person would type it.
func spell(command []string) string {
	words := make([]string, len(command))
	for i, w := range command {
		words[i] = w
		if strings.ContainsAny(w, " '\"") {
			words[i] = `"` + w + `"`
		}
	}
	return strings.Join(words, " ")
}

// end says that all is well.
func (t *teller) end() {
	fmt.Fprintf(t.out, "\n%s\n", t.paint("1;32", fmt.Sprintf(
		"Everything is as it was said: %d checks in %.1f s.", t.checks, time.Since(t.begun).Seconds())))
}

// wrong says what is not.
func (t *teller) wrong(err error) {
	fmt.Fprintf(t.out, "\n%s %v\n", t.paint("1;31", "Not as it should be:"), err)
}
