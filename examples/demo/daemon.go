package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// patience bounds each wait for a daemon, and for what the kernel has to end.
const patience = time.Minute

// A daemon is containerd or ipamd, while it runs.
type daemon struct {
	name  string
	log   string // path
	cmd   *exec.Cmd
	ended chan error
}

// start starts a daemon and waits until it is ready to be used.
func start(ctx context.Context, name string, args []string, ready func(context.Context) error) (*daemon, error) {
	d := &daemon{name: name, log: filepath.Join(demoDir, name+".log"), ended: make(chan error, 1)}
	log, err := os.OpenFile(d.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	d.cmd = exec.CommandContext(ctx, name, args...)
	d.cmd.Stdout, d.cmd.Stderr = log, log
	if err := d.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go func() { d.ended <- d.cmd.Wait() }()

	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for tick := time.NewTicker(10 * time.Millisecond); ; {
		err := ready(ctx)
		if err == nil {
			return d, nil
		}
		select {
		case ended := <-d.ended:
			return nil, fmt.Errorf("start %s: it ended at once: %w", name, ended)
		case <-ctx.Done():
			return nil, fmt.Errorf("start %s: not ready within %v: %w", name, patience, err)
		case <-tick.C:
		}
	}
}

// stop asks a daemon to end, and waits until it has.
func (d *daemon) stop() error {
	if err := d.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return fmt.Errorf("stop %s: %w", d.name, err)
	}
	select {
	case err := <-d.ended:
		if err != nil {
			return fmt.Errorf("stop %s: it did not end in order: %w", d.name, err)
		}
		return nil
	case <-time.After(patience):
		return fmt.Errorf("stop %s: it did not end within %v", d.name, patience)
	}
}

// tellLogs shows the end of the daemons' logs beside a failure.
func (s *story) tellLogs() {
	const enough = 3 << 10
	logs, err := filepath.Glob(filepath.Join(demoDir, "*.log"))
	for _, path := range logs {
		text, unread := os.ReadFile(path)
		err = errors.Join(err, unread)
		if len(text) > enough {
			text = text[len(text)-enough:]
		}
		s.say("\nThe end of %s:\n%s", filepath.Base(path), bytes.TrimSpace(text))
	}
	if err != nil {
		s.say("The logs cannot be read: %v", err)
	}
}
