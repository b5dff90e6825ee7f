package systemd

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// tellRights takes each capability away, and sees that ipamd then cannot do its
// work: none is there for nothing. And it gives ipamd a user of its own.
func tellRights(t *testing.T, m *machine) {
	s := m.sandbox("guest")
	m.eventually("its address is seen", func() bool { return m.works(s) == nil })
	held := strings.Fields(strings.ToUpper(m.property("CapabilityBoundingSet")))
	if len(held) != 4 {
		t.Errorf("the service holds %v", held)
	}
	const all = "AmbientCapabilities=CAP_NET_ADMIN CAP_NET_RAW CAP_NET_BROADCAST CAP_SYS_PTRACE"
	trials := []struct {
		name, unit string
		works      bool
	}{
		{"as it is", "", true},
		{"a user of its own", "User=nobody\n" + all + "\n", false},
		{"a user of its own that may open every file", "User=nobody\nCapabilityBoundingSet=CAP_DAC_OVERRIDE\n" + all + " CAP_DAC_OVERRIDE\n", true},
	}
	for _, one := range held {
		trials = append(trials, struct {
			name, unit string
			works      bool
		}{"without " + one, "CapabilityBoundingSet=~" + one + "\n", false})
	}
	for _, trial := range trials {
		t.Run(trial.name, func(t *testing.T) {
			outer := m.t
			m.t = t
			defer func() { m.t = outer }()
			m.do("systemctl", "stop", "ipamd.service")
			m.put("/etc/systemd/system/ipamd.service.d/rights.conf", "[Service]\n"+trial.unit)
			m.do("systemctl", "daemon-reload")
			mark := m.mark()
			_, err := m.try("systemctl", "start", "ipamd.service")
			if err == nil {
				err = m.works(s)
			}
			defer func() {
				if t.Failed() || !trial.works {
					t.Logf("%v\n%s", err, m.journal(mark))
				}
			}()
			if !trial.works && err == nil {
				t.Error("ipamd does all its work")
			}
			if trial.works && err != nil { // a witness may be slow to speak
				m.eventually("ipamd does all its work", func() bool { err = m.works(s); return err == nil })
			}
		})
	}
	m.do("systemctl", "stop", "ipamd.service")
	m.do("rm", "/etc/systemd/system/ipamd.service.d/rights.conf")
	m.do("systemctl", "daemon-reload")
	m.do("systemctl", "start", "ipamd.service")
	s.end()
}

// works reports why ipamd cannot do all its work, with a sandbox that lives.
func (m *machine) works(s *sandbox) error {
	if _, err := m.allocate(s.name); err != nil {
		return err
	}
	whois, err := m.try("ipamctl", "--timeout", patience, "whois", s.address)
	if err != nil {
		return err
	}
	var errs []error
	for _, witness := range []string{"runtime", "netns"} {
		if says := answer(whois, witness); !strings.HasPrefix(says, "seen") {
			errs = append(errs, fmt.Errorf("the %s witness says %q", witness, says))
		}
	}
	return errors.Join(errs...)
}

// answer is what a witness says in whois's table.
func answer(whois, witness string) string {
	for line := range strings.Lines(whois) {
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] == witness {
			return strings.Join(fields[1:], " ")
		}
	}
	return ""
}
