package systemd

import (
	"strings"
	"testing"
)

// tellHook has an operator's command pause and resume a real task with the rights that the
// service leaves it: programs of the system, and containerd's socket.
func tellHook(t *testing.T, m *machine) {
	const config, command = "/etc/ipamd/ipamd.toml", "/usr/local/sbin/sandbox-task"
	old := m.do("cat", config)
	t.Cleanup(func() {
		m.put(config, old)
		m.do("systemctl", "restart", "ipamd.service")
	})
	m.put(command, "#!/bin/sh\nexec ctr task \"$IPAMD_VERB\" \"$IPAMD_SANDBOX\"\n")
	m.do("chmod", "755", command)
	m.put(config, strings.Replace(old, "[wake]", "[wake]\nresumer = 'exec'\ncommand = ['"+command+"']", 1))
	m.do("systemctl", "restart", "ipamd.service")
	s := m.sandbox("sleeper")
	m.eventually("it is bound", func() bool { return strings.Contains(m.ctl("whois", s.address), "is bound") })
	task := func() string { return m.sh("ctr task ls | awk '$1 == \"sleeper\" { print $3 }'") }
	for range 2 {
		m.ctl("pause", s.id, "--mode", "freeze", "--do")
		if is := task(); is != "PAUSED" {
			t.Fatalf("its task is %s", is)
		}
		m.ctl("wake", s.id, "--wait", "30s")
		if is := task(); is != "RUNNING" {
			t.Errorf("its task is %s", is)
		}
	}
	// What the service refuses the command is in its answer: its file system is read only.
	m.put(command, "#!/bin/sh\ntouch /usr/local/sbin/mark || exit 77\n")
	if out, err := m.try("ipamctl", "pause", s.id, "--mode", "freeze", "--do"); err == nil || !strings.Contains(out+err.Error(), "Read-only file system") {
		t.Errorf("a command that writes: %v %s", err, out)
	}
	m.dropIn(t, "[Service]\nReadWritePaths=/usr/local/sbin\n")
	m.do("systemctl", "restart", "ipamd.service")
	m.put(command, "#!/bin/sh\ntouch /usr/local/sbin/mark && exec ctr task \"$IPAMD_VERB\" \"$IPAMD_SANDBOX\"\n")
	m.ctl("pause", s.id, "--mode", "freeze", "--do")
	m.ctl("wake", s.id, "--wait", "30s")
	m.do("test", "-e", "/usr/local/sbin/mark")
	s.end()
}
