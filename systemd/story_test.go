package systemd

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestUnderSystemd goes through the service's life on one machine, each part on what
// the one before left.
func TestUnderSystemd(t *testing.T) {
	m := boot(t)
	deb := buildDeb(t)
	m.bridge()
	m.install(asOlder(t, deb))
	m.ready()
	for _, part := range []struct {
		name string
		run  func(*testing.T, *machine)
	}{
		{"start", tellStart},
		{"a call starts it", tellActivation},
		{"a socket that is another one is refused", tellWrongSocket},
		{"a call waits through a restart", tellRestart},
		{"restarts under load", tellRestarts},
		{"kill -9", tellKill},
		{"a wrong configuration and a caller", tellWrongConfig},
		{"containerd restarts", tellContainerd},
		{"the watchdog is answered, and not by a stalled writer", tellWatchdog},
		{"reload", tellReload},
		{"stop", tellStop},
		{"each right is needed", tellRights},
		{"M1 ports are made by a service of its own", tellPlumb},
		{"M14 slots are made by another", tellWarm},
		{"a command of the operator pauses and resumes", tellHook},
		{"G18 the memory of others is out of reach", tellMemory},
		{"upgrade with live leases", func(t *testing.T, m *machine) { tellUpgrade(t, m, deb) }},
		{"N8 the driver for Docker has a package of its own", tellDocker},
		{"remove and purge", tellPurge},
		{"installed by hand", tellByHand},
	} {
		ok := t.Run(part.name, func(t *testing.T) {
			outer := m.t
			m.t = t
			defer func() { m.t = outer }()
			began := time.Now()
			part.run(t, m)
			t.Logf("took %v", time.Since(began).Round(time.Millisecond))
		})
		if !ok {
			return
		}
	}
}

func tellStart(t *testing.T, m *machine) {
	m.do("systemctl", "stop", "ipamd.service", "ipamd.socket")
	began := time.Now()
	m.do("systemctl", "start", "ipamd.service")
	t.Logf("start to ready: %v", time.Since(began).Round(time.Millisecond))
	// Type=notify: the start returns with READY, so nothing is waited for.
	if status := m.property("StatusText"); !strings.HasPrefix(status, "ready: 10.8.64.0/24 0 of 253") {
		t.Errorf("its status is %q", status)
	}
	if got := m.sh("stat -c '%a %U:%G' /run/ipamd/ipamd.sock /run/ipamd /var/lib/ipamd /var/lib/ipamd/book.db"); got !=
		"660 root:ipamd\n755 root:ipamd\n700 root:ipamd\n600 root:ipamd" {
		t.Errorf("socket, its folder, the book's, the book: %s", got)
	}
	for _, enabled := range []string{"ipamd.service", "ipamd.socket"} {
		m.do("systemctl", "is-enabled", enabled)
	}
	m.give("a")
	m.eventually("the status line follows", func() bool {
		return strings.HasPrefix(m.property("StatusText"), "ready: 10.8.64.0/24 1 of 253")
	})
}

func tellActivation(t *testing.T, m *machine) {
	m.do("systemctl", "stop", "ipamd.service")
	if state := m.property("ActiveState"); state != "inactive" {
		t.Fatalf("stopped, it is %s", state)
	}
	if state := m.do("systemctl", "is-active", "ipamd.socket"); state != "active" {
		t.Fatalf("its socket is %s", state)
	}
	m.give("b")
	m.active()
}

// active waits until systemd has been notified that ipamd is up. Who calls may be
// answered a moment before.
func (m *machine) active() {
	m.t.Helper()
	m.eventually("the service is active", func() bool { return m.property("ActiveState") == "active" })
}

func tellWrongSocket(t *testing.T, m *machine) {
	held := m.held()
	for _, wrong := range []struct{ unit, says string }{
		{"[Socket]\nSocketMode=0666\n", "its mode is 0666"},
		{"[Socket]\nListenStream=\nListenStream=/run/ipamd/other.sock\n", `it is at \"/run/ipamd/other.sock\"`},
		{"[Socket]\nListenStream=/run/ipamd/second.sock\n", "it gave 2 files"},
	} {
		m.put("/etc/systemd/system/ipamd.socket.d/test.conf", wrong.unit)
		m.do("systemctl", "stop", "ipamd.service", "ipamd.socket")
		m.do("systemctl", "daemon-reload")
		mark := m.mark()
		if _, err := m.try("systemctl", "start", "ipamd.service"); err == nil {
			t.Errorf("%q: it starts", wrong.unit)
		}
		m.eventually("the journal says "+wrong.says, func() bool { return strings.Contains(m.journal(mark), wrong.says) })
	}
	m.do("systemctl", "stop", "ipamd.service", "ipamd.socket")
	m.do("rm", "-r", "/etc/systemd/system/ipamd.socket.d")
	m.do("systemctl", "daemon-reload")
	m.do("systemctl", "start", "ipamd.service")
	if now := m.held(); now != held {
		t.Errorf("held was\n%sand is\n%s", held, now)
	}
}

func tellRestart(t *testing.T, m *machine) {
	// No daemon while the file is there, so that a call can be seen to wait.
	const held = "/etc/ipamd/held"
	m.dropIn(t, "[Service]\nExecStartPre=/bin/sh -c 'while test -e "+held+"; do sleep 0.1; done'\n")
	m.put(held, "")
	restarted := make(chan error, 1)
	go func() {
		_, err := m.try("systemctl", "restart", "ipamd.service")
		restarted <- err
	}()
	m.eventually("it is between two lives", func() bool { return m.property("SubState") == "start-pre" })
	given := make(chan error, 1)
	go func() {
		_, err := m.allocate("c")
		given <- err
	}()
	m.eventually("the call waits at the socket", func() bool { return m.queued() > 0 })
	if state := m.property("SubState"); state != "start-pre" {
		t.Errorf("a call waits, and it is %s", state)
	}
	m.do("rm", held)
	if err := <-given; err != nil {
		t.Error(err)
	}
	if err := <-restarted; err != nil {
		t.Error(err)
	}
}

func tellRestarts(t *testing.T, m *machine) {
	whileCalling(t, m, "restart", func() {
		for range 5 {
			m.do("systemctl", "restart", "ipamd.service")
		}
	})
}

// patient is how long a call waits at the least before a daemon that has just started refuses it: eight seconds,
// or four in one that is asked to stop.
const patient = 4 * time.Second

// whileCalling does something while two callers allocate without a pause. No
// call may fail, but for one that waited for a daemon whose kernel others kept busy for as long as it waits:
// it is told to try again, and has its address then.
func whileCalling(t *testing.T, m *machine, name string, do func()) {
	t.Helper()
	stop := make(chan struct{})
	var callers sync.WaitGroup
	var counts [2]int
	for i := range counts {
		callers.Go(func() {
			for refused := false; ; {
				select {
				case <-stop:
					if !refused {
						return
					}
				default:
				}
				began := time.Now()
				_, err := m.allocate(fmt.Sprintf("%s-%d-%d", name, i, counts[i]%20))
				if err != nil && !refused && time.Since(began) >= patient && strings.Contains(err.Error(), `"code": "not_ready"`) {
					t.Logf("a call was refused after %v: %v", time.Since(began), err)
					refused = true
					continue
				}
				if err != nil {
					t.Errorf("a call failed: %v", err)
					return
				}
				refused = false
				counts[i]++
			}
		})
	}
	func() {
		defer callers.Wait()
		defer close(stop)
		do()
	}()
	t.Logf("%d calls were answered meanwhile", counts[0]+counts[1])
}

func tellKill(t *testing.T, m *machine) {
	held, pid, restarts := m.held(), m.property("MainPID"), m.restarts()
	m.sh("kill -9 " + pid)
	if now := m.held(); now != held { // the call waits for the next life
		t.Errorf("held was\n%sand is\n%s", held, now)
	}
	if now := m.property("MainPID"); now == pid || m.restarts() != restarts+1 {
		t.Errorf("its pid was %s and is %s, after %d restarts more", pid, now, m.restarts()-restarts)
	}
}

// A daemon that cannot start while a caller waits for it is started as often as
// the unit says and no more, however many wait; once the file is repaired, who
// waited is answered.
func tellWrongConfig(t *testing.T, m *machine) {
	const config = "/etc/ipamd/ipamd.toml"
	old := m.do("cat", config)
	m.put(config, "[brigde]\n")
	t.Cleanup(func() { m.put(config, old) })
	began, mark := time.Now(), m.mark()
	if _, err := m.try("systemctl", "restart", "ipamd.service"); err == nil {
		t.Fatal("it starts on a wrong configuration")
	}
	const waiting = 3
	var callers sync.WaitGroup
	for i := range waiting {
		callers.Go(func() {
			if _, err := m.try("ipamctl", "--timeout", patience, "allocate", fmt.Sprint("patient-", i)); err != nil {
				t.Errorf("who waited: %v", err)
			}
		})
	}
	defer callers.Wait()
	starts := func() int { return strings.Count(m.journal(mark), "there is no such key") }
	m.eventually("all wait", func() bool { return m.queued() == waiting })
	before, n := starts(), 0
	m.eventually("it is started again, and again", func() bool { n = starts(); return n >= before+4 })
	// One start was asked for. After each there are RestartSec=2 to the next: a
	// slow machine has fewer of them, never more.
	took := time.Since(began)
	t.Logf("started %d times in %v", n, took.Round(time.Millisecond))
	if most := 2 + int(took/(2*time.Second)); n > most {
		t.Errorf("it was started %d times in %v, want at most %d", n, took, most)
	}
	if n := m.queued(); n != waiting {
		t.Errorf("%d callers wait, want %d", n, waiting)
	}
	if state := m.property("ActiveState") + " " + m.property("SubState"); state != "activating auto-restart" && state != "activating start" {
		t.Errorf("it is %s", state)
	}
	if out, err := m.try("sh", "-c", "ipamctl status 2>&1; echo ended with $?"); err != nil || !strings.HasSuffix(out, "ended with 5") || !strings.Contains(out, "ipamd does not answer") {
		t.Errorf("status of a daemon that does not start: %q, %v", out, err)
	}
	m.put(config, old)
	callers.Wait()
	m.active()
}

func (m *machine) restarts() int {
	m.t.Helper()
	n, err := strconv.Atoi(m.property("NRestarts"))
	if err != nil {
		m.t.Fatal(err)
	}
	return n
}

func tellContainerd(t *testing.T, m *machine) {
	pid := m.property("MainPID")
	m.do("systemctl", "restart", "containerd.service")
	m.give("d")
	m.do("systemctl", "stop", "containerd.service")
	m.give("e") // the runtime is a witness that may be silent
	m.do("systemctl", "start", "containerd.service")
	if now := m.property("MainPID"); now != pid {
		t.Errorf("its pid was %s and is %s", pid, now)
	}
}

func tellWatchdog(t *testing.T, m *machine) {
	watch := func(limit string) {
		m.dropIn(t, "[Service]\nWatchdogSec="+limit+"\n")
		m.do("systemctl", "restart", "ipamd.service")
	}
	// While nothing is wrong no process is ended, unless the machine stands still for
	// as long as the limit.
	watch("12")
	held, restarts := m.held(), m.restarts()
	stamp := func() string { return m.property("WatchdogTimestampMonotonic") }
	for range 2 {
		last := stamp()
		m.eventually("the watchdog is answered", func() bool { return stamp() != last })
	}
	if n := m.restarts(); n != restarts {
		t.Fatalf("it was restarted %d times with nothing wrong", n-restarts)
	}
	// Another process holds the book's write lock and does not release it.
	watch("4")
	mark := m.mark()
	m.do("systemd-run", "--quiet", "--unit=holder", "sh", "-c",
		"(echo '.timeout 600000'; echo 'BEGIN EXCLUSIVE;'; exec sleep 600) | exec sqlite3 /var/lib/ipamd/book.db")
	began := time.Now()
	for _, says := range []string{"ipamd is stuck", "another process writes to", "Watchdog timeout"} {
		m.eventually("the journal says "+says, func() bool { return strings.Contains(m.journal(mark), says) })
	}
	t.Logf("ended %v after the writer stalled", time.Since(began).Round(time.Millisecond))
	m.do("systemctl", "stop", "holder.service")
	m.eventually("it is up again", func() bool { _, err := m.try("ipamctl", "status"); return err == nil })
	if now := m.held(); now != held {
		t.Errorf("held was\n%sand is\n%s", held, now)
	}
}

func tellReload(t *testing.T, m *machine) {
	const config = "/etc/ipamd/ipamd.toml"
	pid := m.property("MainPID")
	old := m.do("cat", config)
	reload := func(text string) string {
		t.Helper()
		m.put(config, text)
		mark := m.mark()
		m.do("systemctl", "reload", "ipamd.service")
		var journal string
		m.eventually("the reload is reported", func() bool {
			journal = m.journal(mark)
			return strings.Contains(journal, "reloaded") && m.property("ActiveState") == "active"
		})
		return journal
	}
	for _, step := range []struct{ text, says string }{
		{strings.Replace(old, "[log]", "[log]\nlevel = 'debug'", 1), "configuration reloaded"},
		{strings.Replace(old, "[allocation]", "[allocation]\ncooldown = '31m'", 1), "allocation.cooldown"},
		{strings.Replace(old, "[log]", "[log]\nlevel = 'loud'", 1), "log.level"},
		{old + "\n", "configuration reloaded"},
	} {
		if journal := reload(step.text); !strings.Contains(journal, step.says) {
			t.Errorf("after %q the journal says, without %s:\n%s", step.text, step.says, journal)
		}
	}
	if now := m.property("MainPID"); now != pid {
		t.Errorf("its pid was %s and is %s", pid, now)
	}
}

func tellStop(t *testing.T, m *machine) {
	held := m.held()
	began := time.Now()
	m.do("systemctl", "stop", "ipamd.socket", "ipamd.service")
	t.Logf("stopped after %v", time.Since(began).Round(time.Millisecond))
	if result := m.property("Result"); result != "success" { // or timeout, after TimeoutStopSec
		t.Errorf("its result is %s", result)
	}
	if files := m.sh("ls /var/lib/ipamd"); strings.Contains(files, "-wal") || strings.Contains(files, "-shm") {
		t.Errorf("left is %s", files)
	}
	if out := m.do("ipamd", "check", "/var/lib/ipamd/book.db"); !strings.Contains(out, "whole") {
		t.Errorf("check says %s", out)
	}
	m.do("systemctl", "start", "ipamd.service")
	if now := m.held(); now != held {
		t.Errorf("held was\n%sand is\n%s", held, now)
	}
}

func tellUpgrade(t *testing.T, m *machine, deb string) {
	s := m.sandbox("lives")
	m.eventually("it is bound", func() bool { return strings.Contains(m.ctl("whois", s.address), "is bound") })
	held, pid := m.held(), m.property("MainPID")
	if v := m.do("dpkg-query", "-W", "-f", "${Version}", "ipamd"); v != "0.0.0~0" {
		t.Fatalf("before it is %s", v)
	}
	whileCalling(t, m, "upgrade", func() { m.install(deb) })
	if v := m.do("dpkg-query", "-W", "-f", "${Version}", "ipamd"); !strings.Contains(filepath.Base(deb), "_"+v+"_") {
		t.Errorf("after it is %s", v)
	}
	if now := m.property("MainPID"); now == pid {
		t.Error("the old one runs on")
	}
	now := m.held()
	for line := range strings.Lines(held) {
		if !strings.Contains(now, line) {
			t.Errorf("after the upgrade this is not held: %s", line)
		}
	}
	s.end()
	m.eventually("its address cools", func() bool { return strings.Contains(m.ctl("whois", s.address), "is cooling") })
}

func tellPurge(t *testing.T, m *machine) {
	m.do("dpkg", "-r", "ipamd")
	if out, err := m.try("systemctl", "is-active", "ipamd.service", "ipamd.socket"); err == nil || strings.Contains(out, "active\n") && !strings.Contains(out, "inactive") {
		t.Errorf("removed, they are %s", out)
	}
	m.do("test", "-e", "/var/lib/ipamd/book.db")
	m.do("ip", "link", "show", "rt0")
	m.do("dpkg", "-P", "ipamd")
	for _, left := range []string{"/var/lib/ipamd", "/run/ipamd", "/etc/ipamd", "/usr/sbin/ipamd", "/usr/lib/systemd/system/ipamd.service",
		"/etc/systemd/system/multi-user.target.wants/ipamd.service", "/etc/systemd/system/sockets.target.wants/ipamd.socket"} {
		if _, err := m.try("test", "!", "-e", left); err != nil {
			t.Errorf("%s is left", left)
		}
	}
	m.do("ip", "link", "show", "rt0")
}

// tellByHand does without the package what docs/OPERATIONS.md says, on a machine
// that the package has left.
func tellByHand(t *testing.T, m *machine) {
	m.do("groupdel", "ipamd") // a package's group stays
	install := exec.Command("make", "-C", "..", "install", "DESTDIR="+m.root)
	if out, err := install.CombinedOutput(); err != nil {
		t.Fatalf("make install: %v\n%s", err, out)
	}
	page, err := os.ReadFile("../docs/OPERATIONS.md")
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(page), "    $ make install\n")
	commands, _, _ := strings.Cut(after, "\n\n")
	if n := strings.Count(commands, "    $ "); n < 3 {
		t.Fatalf("the page has %d commands after make install:\n%s", n, commands)
	}
	m.sh(strings.ReplaceAll(commands, "    $ ", ""))
	m.ready()
	m.give("by-hand")
	m.do("systemctl", "is-enabled", "ipamd.service", "ipamd.socket")
}
