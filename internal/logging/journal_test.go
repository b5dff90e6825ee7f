package logging

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/coreos/go-systemd/v22/journal"
	"golang.org/x/sys/unix"

	"github.com/ipamd/ipamd/internal/realtest"
)

const journald = "/lib/systemd/systemd-journald"

// TestLogInTheJournal: a real journal finds records by their keys, with their
// priorities, whatever is in them.
func TestLogInTheJournal(t *testing.T) {
	realtest.Root(t)
	realtest.Need(t, "journalctl")
	if _, err := os.Stat(journald); err != nil {
		realtest.Lack(t, "needs "+journald)
	}
	// Its sockets and files have fixed places, so it gets a /run and a /var/log
	// of its own, which only this thread and what it starts can see. The thread
	// ends with the goroutine that keeps it.
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		inOwnPlaces(t, journalSees)
	}()
	<-done
}

// inOwnPlaces runs f on a thread that has an empty /run and /var/log.
func inOwnPlaces(t *testing.T, f func(*testing.T)) {
	if err := errors.Join(unix.Unshare(unix.CLONE_NEWNS), unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""),
		unix.Mount("tmpfs", "/run", "tmpfs", 0, "size=64m"), unix.Mount("tmpfs", "/var/log", "tmpfs", 0, "size=64m")); err != nil {
		t.Error(err)
		return
	}
	f(t)
}

// journalName is an instance of journald for a namespace of its own: unlike
// the machine's it reads neither the kernel's log nor the audit.
const journalName = "ipamdtest"

func journalSees(t *testing.T) {
	socket := "/run/systemd/journal/socket"
	if err := errors.Join(os.MkdirAll(filepath.Dir(socket), 0o755), os.MkdirAll("/run/log/journal", 0o755),
		os.Symlink("/run/systemd/journal."+journalName+"/socket", socket)); err != nil {
		t.Error(err)
		return
	}
	daemon := exec.Command(journald, journalName)
	daemon.SysProcAttr = &unix.SysProcAttr{Pdeathsig: unix.SIGKILL}
	if err := daemon.Start(); err != nil {
		t.Error(err)
		return
	}
	defer func() {
		if err := daemon.Process.Kill(); err != nil {
			t.Error(err)
		}
		_ = daemon.Wait() // it says that it was killed
	}()
	if !soon(func() bool {
		conn, err := net.Dial("unixgram", socket)
		if err == nil {
			conn.Close()
		}
		return err == nil
	}) {
		t.Error("journald does not listen")
		return
	}
	stands := new(buffer)
	log := slog.New(newFieldHandler(slog.NewTextHandler(stands, nil), slog.LevelInfo, journal.Send))
	log.With("lease", "l-1").Warn("address is quarantined", "addr", netip.MustParseAddr("10.8.64.7"), "witness", "netns", "rev", 7)
	log.Error("odd name", "sandbox", "a\nMESSAGE=forged", "mac", net.HardwareAddr{2, 0x42, 0, 0, 0, 1}, "err", errors.New("no way"))
	log.Info("long", "sandbox", strings.Repeat("x", 300_000))
	log.Debug("detail", "addr", "10.8.64.7")
	log.WithGroup("peer").Info("asked", "uid", 1000, slog.Group("process", "id", 4))

	for query, want := range map[string]map[string]string{
		"IPAMD_ADDR=10.8.64.7": {"PRIORITY": "4", "IPAMD_LEASE": "l-1", "IPAMD_WITNESS": "netns", "IPAMD_REV": "7", "SYSLOG_IDENTIFIER": "ipamd",
			"MESSAGE": "address is quarantined lease=l-1 addr=10.8.64.7 witness=netns rev=7", "IPAMD_MSG": "address is quarantined"},
		"IPAMD_MSG=odd name": {"PRIORITY": "3", "IPAMD_SANDBOX": "a\nMESSAGE=forged", "IPAMD_MAC": "02:42:00:00:00:01", "IPAMD_ERR": "no way",
			"MESSAGE": `odd name sandbox="a\nMESSAGE=forged" mac=02:42:00:00:00:01 err="no way"`},
		"IPAMD_MSG=long":      {"PRIORITY": "6", "IPAMD_SANDBOX": strings.Repeat("x", 300_000)},
		"IPAMD_PEER_UID=1000": {"PRIORITY": "6", "IPAMD_PEER_PROCESS_ID": "4"},
	} {
		var found []map[string]any
		if !soon(func() bool { found = journalHas(t, query); return len(found) > 0 }) || len(found) != 1 {
			t.Errorf("%s: %d records", query, len(found))
			continue
		}
		for key, value := range want {
			if found[0][key] != value {
				t.Errorf("%s: %s is %.80q, want %.80q", query, key, found[0][key], value)
			}
		}
	}
	if got := stands.String(); got != "" {
		t.Errorf("the journal did not take: %s", got)
	}
}

// journalHas asks for the records that a field selects.
func journalHas(t *testing.T, field string) (found []map[string]any) {
	out, err := exec.Command("journalctl", "--namespace="+journalName, "--all", "-o", "json", field).Output()
	if err != nil {
		return nil // it has no file yet
	}
	for line := range bytes.Lines(out) {
		record := make(map[string]any)
		if err := json.Unmarshal(line, &record); err != nil {
			t.Error(err)
			return nil
		}
		found = append(found, record)
	}
	return found
}

// soon is [realtest.Eventually] for a goroutine that may not end the test.
func soon(ok func() bool) bool {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); <-tick.C {
		if ok() {
			return true
		}
	}
	return ok()
}
