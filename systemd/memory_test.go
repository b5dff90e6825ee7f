package systemd

import (
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// reaches tries, inside the service's sandbox and with its capabilities, what a
// daemon that another controls would try on other processes and on its own
// configuration, and writes a line for each that works.
var reaches = fmt.Sprintf(`use strict;
open(my $out, ">", "/run/ipamd/reached") or die;
my ($iov, $pid, $n) = (pack("QQ", 0, 0), 1, 0);
my @calls = (["process_vm_readv", %d, $pid, $iov, 0, $iov, 0, 0], ["process_vm_writev", %d, $pid, $iov, 0, $iov, 0, 0],
	["kcmp", %d, $pid, $pid, 1, 0, 0, 0], ["userfaultfd", %d, 0, 0, 0, 0, 0, 0], ["pidfd_getfd", %d, -1, 0, 0, 0, 0, 0],
	["process_madvise", %d, -1, $iov, 0, 21, 0, 0], ["process_mrelease", %d, -1, 0, 0, 0, 0, 0], ["ptrace", %d, 16, $pid, 0, 0, 0, 0]);
for my $c (@calls) {
	my ($name, @args) = @$c;
	$! = 0;
	my $got = syscall($args[0], @args[1 .. 6]);
	print $out "$name: ", $got < 0 ? "$!" : "works", "\n";
}
for my $file ("/proc/1/mem", "/proc/1/oom_score_adj", "/etc/ipamd/ipamd.toml", "/etc/ipamd/new") {
	print $out "$file: ", open(my $f, ">>", $file) ? "opened" : "$!", "\n";
}
print $out "/proc/1/ns/net: ", open(my $f, "<", "/proc/1/ns/net") ? "opened" : "$!", "\n";
`, unix.SYS_PROCESS_VM_READV, unix.SYS_PROCESS_VM_WRITEV, unix.SYS_KCMP, unix.SYS_USERFAULTFD, unix.SYS_PIDFD_GETFD,
	unix.SYS_PROCESS_MADVISE, unix.SYS_PROCESS_MRELEASE, unix.SYS_PTRACE)

// tellMemory is G18: a daemon that another controls has CAP_SYS_PTRACE, and
// neither writes nor reads the memory of another process with it, takes none of its
// files, and does not change its own configuration. What the capability is for works.
func tellMemory(t *testing.T, m *machine) {
	m.put("/etc/ipamd/reaches.pl", reaches)
	m.dropIn(t, "[Service]\nExecStartPre=/usr/bin/perl /etc/ipamd/reaches.pl\n")
	m.do("systemctl", "restart", "ipamd.service")
	got := m.do("cat", "/run/ipamd/reached")
	m.do("rm", "/etc/ipamd/reaches.pl", "/run/ipamd/reached")
	const denied, readOnly = "Operation not permitted", "Read-only file system"
	want := map[string]string{"/proc/1/mem": readOnly, "/proc/1/oom_score_adj": readOnly,
		"/etc/ipamd/ipamd.toml": readOnly, "/etc/ipamd/new": readOnly, "/proc/1/ns/net": "opened"}
	for _, call := range []string{"process_vm_readv", "process_vm_writev", "kcmp", "userfaultfd", "pidfd_getfd", "process_madvise", "process_mrelease", "ptrace"} {
		want[call] = denied
	}
	for line := range strings.Lines(got) {
		what, says, _ := strings.Cut(strings.TrimSpace(line), ": ")
		if says != want[what] {
			t.Errorf("%s: %s, want %q", what, says, want[what])
		}
		delete(want, what)
	}
	if len(want) > 0 {
		t.Errorf("not tried: %v in\n%s", want, got)
	}
	m.ready()
}
