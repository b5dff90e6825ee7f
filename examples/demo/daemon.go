package main

import (
	"bytes"
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
func start(name string, args []string, ready func() error) (*daemon, error) {
	d := &daemon{name: name, log: filepath.Join(demoDir, name+".log"), ended: make(chan error, 1)}
	log, err := os.OpenFile(d.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	d.cmd = exec.Command(name, args...)
	d.cmd.Stdout, d.cmd.Stderr = log, log
	if err := d.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go func() { d.ended <- d.cmd.Wait() }()

	for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		err := ready()
		if err == nil {
			return d, nil
		}
		select {
		case ended := <-d.ended:
			return nil, fmt.Errorf("start %s: it ended at once: %w", name, ended)
		default:
		}
		if time.Now().After(end) {
			return nil, fmt.Errorf("start %s: not ready within %v: %w", name, patience, err)
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

// kill ends a daemon as a crash would.
func (d *daemon) kill() error {
	if err := d.cmd.Process.Kill(); err != nil {
		return fmt.Errorf("kill %s: %w", d.name, err)
	}
	<-d.ended
	return nil
}

// showLogs shows the end of the daemons' logs beside a failure.
func (o *output) showLogs() {
	const enough = 3 << 10
	logs, _ := filepath.Glob(filepath.Join(demoDir, "*.log"))
	for _, path := range logs {
		text, err := os.ReadFile(path)
		o.say("\nThe end of %s (%v):\n%s", filepath.Base(path), err, bytes.TrimSpace(text[max(0, len(text)-enough):]))
	}
}
