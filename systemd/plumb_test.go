package systemd

import (
	"strings"
	"testing"
)

// tellPlumb has a port made by the helper's service, as closed as it is, and takes each
// of its rights away, without which it does not do all its work.
func tellPlumb(t *testing.T, m *machine) {
	if out, err := m.try("systemctl", "is-active", "ipamd-plumb"); err == nil {
		t.Errorf("it runs before a client wants it: %s", out)
	}
	m.do("ip", "netns", "add", "plumbed")
	lease := m.give("plumbed")
	if out, err := m.try("ipamctl", "attach", lease.ID, "--netns", "/run/netns/plumbed"); err == nil || !strings.Contains(out+err.Error(), "systemctl start ipamd-plumb") {
		t.Errorf("without the service: %v %s", err, out)
	}
	// works attaches and detaches, and says what did not work. While there is the port, seen looks on.
	works := func(seen func()) string {
		m.eventually("the helper asks for work", func() bool { return strings.Contains(m.ctl("status"), "made by attach") })
		out, err := m.try("ipamctl", "attach", lease.ID, "--netns", "/run/netns/plumbed")
		if err != nil {
			return out + err.Error()
		}
		if out = m.do("ip", "-n", "plumbed", "address", "show", "eth0"); !strings.Contains(out, lease.Address) {
			t.Errorf("in the namespace: %s", out)
		}
		seen()
		m.ctl("detach", lease.ID)
		return ""
	}
	m.do("systemctl", "start", "ipamd-plumb")
	if wrong := works(func() {}); wrong != "" {
		t.Error(wrong)
	}
	vm := m.give("vm")
	if out, err := m.try("ipamctl", "attach", vm.ID, "--tap"); err != nil {
		t.Errorf("a tap: %s %v", out, err)
	}
	if out := m.do("ip", "-d", "link", "show", "master", "rt0"); !strings.Contains(out, "tun type tap") {
		t.Errorf("there is no tap: %s", out)
	}
	m.ctl("detach", vm.ID)
	m.ctl("release", vm.ID)
	held := strings.Fields(strings.ToUpper(m.do("systemctl", "show", "-P", "CapabilityBoundingSet", "ipamd-plumb")))
	if len(held) != 3 {
		t.Errorf("the service holds %v", held)
	}
	for _, one := range held {
		m.put("/etc/systemd/system/ipamd-plumb.service.d/rights.conf", "[Service]\nCapabilityBoundingSet=~"+one+"\n")
		m.do("systemctl", "daemon-reload")
		m.do("systemctl", "restart", "ipamd-plumb")
		wrong := works(func() {
			if one == "CAP_NET_RAW" { // the caller does not wait for what is announced
				m.eventually("that nothing can be announced is in the journal", func() bool {
					return strings.Contains(m.do("journalctl", "-u", "ipamd-plumb", "-o", "cat", "--no-pager"), "announce port")
				})
			}
		})
		if wrong == "" && one != "CAP_NET_RAW" {
			t.Errorf("without %s it does all its work", one)
		}
		t.Logf("without %s: %s", one, wrong)
	}
	m.do("rm", "-r", "/etc/systemd/system/ipamd-plumb.service.d")
	m.do("systemctl", "daemon-reload")
	m.do("systemctl", "restart", "ipamd-plumb")
	if wrong := works(func() {}); wrong != "" {
		t.Error(wrong)
	}
	m.ctl("release", lease.ID)
	m.do("ip", "netns", "del", "plumbed")
	m.do("systemctl", "stop", "ipamd-plumb")
}
