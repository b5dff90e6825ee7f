package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	"golang.org/x/term"
)

// An output shows what is done and why, the commands with what they print, and what
// was checked. What does not hold ends the program, and with it all that runs in its
// namespaces.
type output struct {
	colour bool
	begun  time.Time
	steps  int
	checks int
}

func newOutput() *output {
	colour := term.IsTerminal(int(os.Stdout.Fd())) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
	return &output{colour: colour, begun: time.Now()}
}

func (o *output) paint(sgr, text string) string {
	if !o.colour {
		return text
	}
	return "\x1b[" + sgr + "m" + text + "\x1b[0m"
}

// step begins a step.
func (o *output) step(title string) {
	o.steps++
	fmt.Printf("\n%s\n", o.paint("1", fmt.Sprintf("%d. %s", o.steps, title)))
}

// say explains.
func (o *output) say(format string, args ...any) { fmt.Printf("   "+format+"\n", args...) }

// check ends the program unless a claim is true, and prints it when it is.
func (o *output) check(ok bool, format string, args ...any) {
	claim := fmt.Sprintf(format, args...)
	if !ok {
		o.must(fmt.Errorf("this does not hold: %s", claim))
	}
	o.checks++
	fmt.Printf("   %s %s\n", o.paint("32", "checked:"), claim)
}

// must ends the program with an error, and with the end of the daemons' logs.
func (o *output) must(err error) {
	if err != nil {
		o.showLogs()
		fmt.Printf("\n%s %v\n", o.paint("1;31", "The demo failed:"), err)
		thaw(os.Getenv("SANDBOX_CGROUP"))
		os.Exit(1)
	}
}

// eventually checks a claim about what is reported by events, which takes a moment.
func (o *output) eventually(ok func() bool, format string, args ...any) {
	end := time.Now().Add(patience)
	for !ok() && time.Now().Before(end) {
		time.Sleep(time.Millisecond)
	}
	o.check(ok(), format, args...)
}

// show shows a command and its output.
func (o *output) show(command ...string) { o.must(o.try(os.Stdout, command)) }

// run is show, and returns what the command printed: no terminal, then.
func (o *output) run(command ...string) string {
	var printed strings.Builder
	o.must(o.try(io.MultiWriter(os.Stdout, &printed), command))
	return printed.String()
}

// fails shows a command that must fail.
func (o *output) fails(command ...string) {
	o.check(o.try(os.Stdout, command) != nil, "%s fails, as it must", spell(command))
}

func (o *output) try(out io.Writer, command []string) error {
	fmt.Printf("\n%s\n", o.paint("36", "$ "+spell(command)))
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Stdout, cmd.Stderr = out, os.Stdout
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w", spell(command), err)
	}
	return nil
}

// spell writes a command as a person would type it.
func spell(command []string) string {
	words := make([]string, len(command))
	for i, w := range command {
		if words[i] = w; strings.ContainsAny(w, " '\"") {
			words[i] = `"` + w + `"`
		}
	}
	return strings.Join(words, " ")
}

// end reports that all is well.
func (o *output) end() {
	fmt.Printf("\n%s\n", o.paint("1;32", fmt.Sprintf("All %d checks hold, after %.1f s.", o.checks, time.Since(o.begun).Seconds())))
}
