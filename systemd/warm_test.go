package systemd

import (
	"strings"
	"testing"
)

// tellWarm has the slots of a pool made by their service, where every process of the machine sees
// them, takes each of the service's rights away, without which it makes or announces none, and takes the
// slots down.
func tellWarm(t *testing.T, m *machine) {
	if out, err := m.try("systemctl", "is-active", "ipamd-warm"); err == nil {
		t.Errorf("it runs before slots are wanted: %s", out)
	}
	// slots are the namespaces as a process of the machine sees them, outside of all services.
	slots := func() (names []string) {
		out, _ := m.try("ip", "netns", "list") // without any there is no folder
		for _, f := range strings.Fields(out) {
			if strings.HasPrefix(f, "ipamd-") {
				names = append(names, f)
			}
		}
		return names
	}
	shown := func(want string) {
		m.eventually("pool show has "+want, func() bool {
			return strings.Contains(strings.Join(strings.Fields(m.ctl("pool", "show", "default")), " "), want)
		})
	}
	gone := func() {
		m.ctl("pool", "apply", "default", "--warm", "0")
		m.eventually("all slots are taken down", func() bool { return len(slots()) == 0 })
	}
	m.ctl("pool", "apply", "default", "--warm", "3")
	shown("0 ready, 0 being made, 0 being taken down; the warm helper is not running")
	m.do("systemctl", "start", "ipamd-warm")
	shown("3 ready, 0 being made")
	made := slots()
	if len(made) != 3 {
		t.Errorf("namespaces: %v", made)
	}
	for _, name := range made {
		if out := m.do("ip", "-n", name, "address", "show", "eth0"); !strings.Contains(out, "state UP") || !strings.Contains(out, "inet ") {
			t.Errorf("in %s: %s", name, out)
		}
	}
	// It keeps nothing: another one takes down what it made.
	m.do("systemctl", "restart", "ipamd-warm")
	gone()
	held := strings.Fields(strings.ToUpper(m.do("systemctl", "show", "-P", "CapabilityBoundingSet", "ipamd-warm")))
	if len(held) != 3 {
		t.Errorf("the service holds %v", held)
	}
	rights := map[string]string{"mounts": "SystemCallFilter=~mount", "namespaces": "RestrictNamespaces=yes", "packets": "RestrictAddressFamilies=~AF_PACKET"}
	for _, one := range held {
		rights[one] = "CapabilityBoundingSet=~" + one
	}
	for name, without := range rights {
		m.put("/etc/systemd/system/ipamd-warm.service.d/rights.conf", "[Service]\n"+without+"\n")
		m.do("systemctl", "daemon-reload")
		m.do("systemctl", "restart", "ipamd-warm")
		m.ctl("pool", "apply", "default", "--warm", "1")
		if name == "CAP_NET_RAW" || name == "packets" { // slots are made, and none is announced
			id := strings.TrimSpace(m.do("systemctl", "show", "-P", "InvocationID", "ipamd-warm"))
			shown("1 ready, 0 being made")
			m.eventually("that nothing can be announced is in the journal", func() bool {
				return strings.Contains(m.do("journalctl", "_SYSTEMD_INVOCATION_ID="+id, "-o", "cat", "--no-pager"), "announce port")
			})
		} else {
			shown("0 ready, 0 being made, 0 being taken down; the last one could not be made")
		}
		t.Logf("without %s: %s", name, m.ctl("pool", "show", "default"))
		gone()
	}
	m.do("rm", "-r", "/etc/systemd/system/ipamd-warm.service.d")
	m.do("systemctl", "daemon-reload")
	m.do("systemctl", "restart", "ipamd-warm")
	m.ctl("pool", "apply", "default", "--warm", "2")
	shown("2 ready, 0 being made")
	// A namespace of its own for mounts, and nothing else sees what it makes: that is why it has none.
	m.put("/etc/systemd/system/ipamd-warm.service.d/mounts.conf", "[Service]\nPrivateMounts=yes\n")
	m.do("systemctl", "daemon-reload")
	m.do("systemctl", "restart", "ipamd-warm")
	m.ctl("pool", "apply", "default", "--warm", "3")
	shown("2 ready, 0 being made, 0 being taken down; the last one could not be made")
	if out := strings.Join(strings.Fields(m.ctl("pool", "show", "default")), " "); !strings.Contains(out, "has to be seen by all processes") {
		t.Errorf("where nothing sees what is mounted: %s", out)
	}
	m.do("rm", "-r", "/etc/systemd/system/ipamd-warm.service.d")
	m.do("systemctl", "daemon-reload")
	m.do("systemctl", "restart", "ipamd-warm")
	gone()
	m.do("systemctl", "stop", "ipamd-warm")
}
