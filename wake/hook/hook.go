// Package hook has a command of the operator pause and resume sandboxes.
//
// It runs the command once for each attempt, with what is known of the lease in its
// environment, and reads its exit code. What the command prints is one sentence for the
// history, and decides nothing.
package hook

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/wake"
)

// Exit codes of the command, those of sysexits.h. Every other one, and a signal, may pass:
// the command is run again until the deadline.
const (
	Done       = 0
	Gone       = 69 // EX_UNAVAILABLE: the sandbox is gone
	NotAllowed = 77 // EX_NOPERM
)

// A Command is a program and its first arguments. The verb, pause or resume, and the lease's
// id follow those. It is a [wake.Resumer] and a [wake.Pauser], and safe for concurrent use.
type Command []string

var _ interface {
	wake.Resumer
	wake.Pauser
} = Command(nil)

// Check is an error when the program cannot be run.
func (c Command) Check() error {
	if len(c) == 0 {
		return errors.New("there is no command")
	}
	_, err := exec.LookPath(c[0])
	return err
}

// Resume runs the command with the verb resume.
func (c Command) Resume(ctx context.Context, l *ipam.Lease, s *ipam.Sleep) error {
	return c.run(ctx, "resume", l, s)
}

// Pause runs the command with the verb pause.
func (c Command) Pause(ctx context.Context, l *ipam.Lease, s *ipam.Sleep) error {
	return c.run(ctx, "pause", l, s)
}

// lastWords is how long the output of a command is read that ended, or was killed.
const lastWords = 500 * time.Millisecond

func (c Command) run(ctx context.Context, verb string, l *ipam.Lease, s *ipam.Sleep) error {
	args := append(append([]string(nil), c[1:]...), verb, l.ID)
	cmd := exec.CommandContext(ctx, c[0], args...)
	cmd.Env = environment(verb, l, s)
	cmd.Dir = "/"
	said := new(words)
	cmd.Stdout, cmd.Stderr = said, said
	// A process group, so that what the command started ends with it, but in a session of its own.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = lastWords
	err := cmd.Run()
	if errors.Is(err, exec.ErrWaitDelay) {
		err = nil // it has ended well; a child of it keeps the pipe
	}
	if err == nil {
		return nil
	}
	err = fmt.Errorf("%s: %w", c[0], err)
	if line := said.line(); line != "" {
		err = fmt.Errorf("%w: %s", err, line)
	}
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		switch exit.ExitCode() {
		case Gone:
			return fmt.Errorf("%w: the sandbox is gone: %w", wake.ErrRefused, err)
		case NotAllowed:
			return fmt.Errorf("%w: it is not allowed: %w", wake.ErrRefused, err)
		}
	}
	return err
}

// environment is all that the command is given beside its arguments: nothing of the
// daemon's own, which may hold what is not the command's business.
func environment(verb string, l *ipam.Lease, s *ipam.Sleep) []string {
	var containers []string
	for _, c := range l.Containers {
		containers = append(containers, c.String())
	}
	return []string{
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"IPAMD_VERB=" + verb,
		"IPAMD_LEASE=" + l.ID,
		"IPAMD_ADDRESS=" + l.Addr.String(),
		"IPAMD_SANDBOX=" + l.Sandbox,
		"IPAMD_UID=" + l.UID,
		"IPAMD_MODE=" + string(s.Mode),
		"IPAMD_CONTAINERS=" + strings.Join(containers, " "),
		"IPAMD_NETNS=" + l.Netns,
		"IPAMD_HOST_INTERFACE=" + l.HostInterface,
	}
}

// words keep the begin of what a command prints.
type words struct{ bytes.Buffer }

// mostWords is how much is kept, and one line of it recorded.
const mostWords = 1 << 10

func (w *words) Write(b []byte) (int, error) {
	w.Buffer.Write(b[:min(len(b), mostWords-min(w.Len(), mostWords))])
	return len(b), nil
}

// line is the first line, with nothing in it that steers a terminal.
func (w *words) line() string {
	first, _, _ := strings.Cut(strings.TrimSpace(w.String()), "\n")
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r == '\uFFFD' {
			return -1
		}
		return r
	}, strings.ToValidUTF8(first, ""))
}
