package storm_test

import (
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sys/unix"
)

// A daemon is ipamd in a process of its own, in the runner's network namespace
// and with clocks of its own. Its methods belong on the test's goroutine.
type daemon struct {
	program, dir string
	book         string
	netns        string

	offset time.Duration // of its CLOCK_BOOTTIME against the machine's
	boot   string        // file with its boot id; "" is the machine's
	memory int           // the most that any had resident, in bytes

	cmd   *exec.Cmd
	ended chan struct{} // closed when cmd is reaped
}

func (d *daemon) path(name string) string { return filepath.Join(d.dir, name) }

// start starts it and does not wait for its first word. Each program of the
// chain replaces the one before it, so the pid is ipamd's in the end.
func (d *daemon) start() error {
	log, err := os.OpenFile(d.path("log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	args := []string{"--net=" + d.netns, "unshare", "--time", "--boottime", strconv.Itoa(int(d.offset / time.Second))}
	if d.boot != "" {
		args = append(args, "--mount", "--propagation", "slave", "sh", "-c",
			`mount --bind "$0" /proc/sys/kernel/random/boot_id && exec "$@"`, d.boot)
	}
	d.cmd = exec.Command("nsenter", append(args, d.program, "run", "--config", d.path("ipamd.toml"))...)
	d.cmd.Stdout, d.cmd.Stderr = log, log
	// A group of its own: an interrupt at the terminal is for the test. One
	// that dies takes the daemon along.
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd, started, ended := d.cmd, make(chan error), make(chan struct{})
	go func() {
		runtime.LockOSThread() // Pdeathsig means the death of the thread that started it
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // how it ended is in cmd.ProcessState
		}
		close(ended)
	}()
	d.ended = ended
	if err := <-started; err != nil {
		return fmt.Errorf("start ipamd: %w", err)
	}
	return nil
}

func (d *daemon) over() bool {
	select {
	case <-d.ended:
		return true
	default:
		return false
	}
}

// kill ends it as a crash does. It is an error when it had ended before.
func (d *daemon) kill() error {
	if d.over() {
		return fmt.Errorf("ipamd ended by itself: %v", d.cmd.ProcessState)
	}
	d.noteMemory()
	err := d.cmd.Process.Kill()
	<-d.ended
	return err
}

// stop ends it in order.
func (d *daemon) stop() error {
	if d.over() {
		return fmt.Errorf("ipamd ended by itself: %v", d.cmd.ProcessState)
	}
	d.noteMemory()
	if err := d.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case <-d.ended:
	case <-time.After(patience):
		return errors.Join(errors.New("stop ipamd: it does not end"), d.kill())
	}
	if !d.cmd.ProcessState.Success() {
		return fmt.Errorf("stop ipamd: %v", d.cmd.ProcessState)
	}
	return nil
}

// noteMemory notes the most memory that it had resident. One that was not ipamd yet had none.
func (d *daemon) noteMemory() {
	status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", d.cmd.Process.Pid))
	_, behind, _ := strings.Cut(string(status), "VmHWM:")
	kib := 0
	_, _ = fmt.Sscan(behind, &kib)
	d.memory = max(d.memory, kib<<10)
}

// memoryMax is what the unit allows, in bytes.
func memoryMax(t *testing.T) (most int) {
	t.Helper()
	unit, err := os.ReadFile("../systemd/ipamd.service")
	_, behind, _ := strings.Cut(string(unit), "\nMemoryMax=")
	unitOf := ""
	if _, bad := fmt.Sscanf(behind, "%d%s", &most, &unitOf); err != nil || bad != nil || unitOf != "G" {
		t.Fatalf("MemoryMax of the unit: %v, %v", err, bad)
	}
	return most << 30
}

// uptime is what the next start will see as the time since the boot.
func (d *daemon) uptime() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		panic("read CLOCK_BOOTTIME: " + err.Error())
	}
	return time.Duration(ts.Nano()) + d.offset
}

// step moves the boot's clock of the next start.
func (d *daemon) step(by time.Duration) {
	d.offset += max(by, time.Second-d.uptime()).Truncate(time.Second)
}

// reboot gives the next start another boot id and a short uptime, and returns
// an upper bound of that.
func (d *daemon) reboot(n int) (time.Duration, error) {
	d.step(2*time.Second - d.uptime())
	d.boot = d.path(fmt.Sprint("boot-", n))
	return d.uptime() + time.Second, os.WriteFile(d.boot, []byte(uuid.NewString()+"\n"), 0o600)
}

// moveWall moves the wall's part of every stamp in the book of a dead daemon,
// as if the wall clock had been stepped the other way since they were written.
func (d *daemon) moveWall(by time.Duration) (err error) {
	book, err := sql.Open("sqlite", d.book)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, book.Close()) }()
	_, err = book.Exec(strings.ReplaceAll(`BEGIN IMMEDIATE;
		UPDATE leases SET created_wall = created_wall + BY, since_wall = since_wall + BY;
		UPDATE changes SET wall = wall + BY;
		UPDATE tombstones SET wall = wall + BY;
		UPDATE pools SET created_wall = created_wall + BY;
		COMMIT`, "BY", strconv.FormatInt(int64(by), 10)))
	if err != nil {
		return fmt.Errorf("move the wall clock's times: %w", err)
	}
	return nil
}
