package systemd

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ipamd/ipamd/api"
)

// buildDeb builds the package as `make deb` does.
func buildDeb(t testing.TB) string {
	t.Helper()
	if out, err := exec.Command("make", "-C", "..", "deb").CombinedOutput(); err != nil {
		t.Fatalf("make deb: %v\n%s", err, out)
	}
	found, err := filepath.Glob("../bin/ipamd_*.deb")
	if err != nil || len(found) != 1 {
		t.Fatalf("make deb left %v, %v", found, err)
	}
	return found[0]
}

// asOlder repacks a package under a version that is older than any.
func asOlder(t testing.TB, deb string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "older")
	out, err := exec.Command("dpkg-deb", "-R", deb, dir).CombinedOutput()
	if err != nil {
		t.Fatalf("unpack %s: %v\n%s", deb, err, out)
	}
	control := filepath.Join(dir, "DEBIAN/control")
	text, err := os.ReadFile(control)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(text), "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, "Version:") {
			lines[i] = "Version: 0.0.0~0"
		}
	}
	if err := os.WriteFile(control, []byte(strings.Join(lines, "\n")), 0o644); err != nil {
		t.Fatal(err)
	}
	older := dir + ".deb"
	if out, err := exec.Command("dpkg-deb", "-Znone", "-b", dir, older).CombinedOutput(); err != nil {
		t.Fatalf("pack %s: %v\n%s", older, err, out)
	}
	return older
}

// install installs a package in the machine.
func (m *machine) install(deb string) {
	m.t.Helper()
	text, err := os.ReadFile(deb)
	if err != nil {
		m.t.Fatal(err)
	}
	m.put("/root/ipamd.deb", string(text))
	m.do("dpkg", "-i", "/root/ipamd.deb")
}

// bridge makes rt0 with the pool's gateway, as the runner's network setup does.
func (m *machine) bridge() {
	m.t.Helper()
	m.sh("ip link add rt0 type bridge; ip address add 10.8.64.1/24 dev rt0; ip link set rt0 up")
}

// ready waits until addresses are given.
func (m *machine) ready() {
	m.t.Helper()
	m.eventually("ipamd is ready", func() bool {
		_, err := m.try("ipamctl", "status")
		return err == nil
	})
}

// patience is how long a caller waits through a restart. It is shorter than
// wait, so that its own error is reported.
const patience = "2m"

// ctl is an ipamctl that must be answered.
func (m *machine) ctl(args ...string) string {
	m.t.Helper()
	return m.do(append([]string{"ipamctl", "--timeout", patience}, args...)...)
}

func (m *machine) allocate(sandbox string) (api.Lease, error) {
	var r api.AllocateReply
	out, err := m.try("ipamctl", "--timeout", patience, "-o", "json", "allocate", sandbox)
	if err == nil {
		err = json.Unmarshal([]byte(out), &r)
	}
	if err != nil {
		return api.Lease{}, err
	}
	return r.Leases[0], nil
}

// give is allocate that must work.
func (m *machine) give(sandbox string) api.Lease {
	m.t.Helper()
	l, err := m.allocate(sandbox)
	if err != nil {
		m.t.Fatalf("%v\nthe journal:\n%s", err, m.do("journalctl", "-u", "ipamd", "-n", "30", "-o", "cat", "--no-pager"))
	}
	return l
}

// held lists "address sandbox id" of every open lease.
func (m *machine) held() string {
	m.t.Helper()
	var list api.LeaseList
	if err := json.Unmarshal([]byte(m.ctl("-o", "json", "leases")), &list); err != nil {
		m.t.Fatal(err)
	}
	var out strings.Builder
	for _, l := range list.Leases {
		if l.State == api.Reserved || l.State == api.Bound {
			fmt.Fprintln(&out, l.Address, l.Sandbox, l.ID)
		}
	}
	return out.String()
}
