package main

import (
	"strings"
	"testing"

	"github.com/ipamd/ipamd/api"
)

// A hint names what the verb was about, so that it can be typed as it stands.
func TestHintsNameTheSubject(t *testing.T) {
	w := runner()
	w.serve(t)
	for hint, c := range map[string]struct {
		code  api.Code
		about subject
	}{
		"ipamctl show 0a1b2c3d":          {api.StaleRevision, subject{lease: "0a1b2c3d"}},
		"ipamctl show LEASE":             {api.StaleRevision, subject{}},
		"again: ipamctl whois 10.8.64.9": {api.StaleRevision, subject{address: "10.8.64.9"}},
		"ipamctl whois 10.8.64.7":        {api.StateNotAllowed, subject{address: "10.8.64.7"}},
		"ipamctl pool show default":      {api.StaleGeneration, subject{pool: "default"}},
	} {
		if got := hintFor(&api.Error{Code: c.code}, c.about); !strings.HasSuffix(got, hint) {
			t.Errorf("hint is %q, want %q", got, hint)
		}
	}
	for hint, c := range map[string]struct {
		field string
		about subject
	}{
		"the argument is mac; what it takes: ipamctl bind --help": {"mac", subject{verb: "ipamctl bind"}},
		"what it takes: ipamctl VERB --help":                      {"", subject{}},
		"the pools and their prefixes: ipamctl pools":             {"family", subject{verb: "ipamctl allocate"}},
		"ipamctl book backup /var/lib/ipamd/backup.db":            {"path", subject{verb: "ipamctl book backup"}},
	} {
		if got := hintFor(&api.Error{Code: api.InvalidArgument, Details: map[string]any{"field": c.field}}, c.about); !strings.HasSuffix(got, hint) {
			t.Errorf("hint is %q, want %q", got, hint)
		}
	}
	for line, want := range map[string]string{
		"release " + id(99):                           "ipamctl history --lease " + id(99),
		"bind " + id(99) + " --mac 02:42:0a:08:40:02": "ipamctl history --lease " + id(99),
	} {
		s := &screen{env: map[string]string{"IPAMD_SOCKET": w.socket}}
		if code := w.ctl(t, s, strings.Fields(line)...); code == 0 {
			t.Errorf("%s: exit 0", line)
		}
		if got := s.err.String(); !strings.Contains(got, want+"\n") && !strings.Contains(got, want+",") {
			t.Errorf("%s: no %q in %q", line, want, got)
		}
	}
	w.refuse = &api.Error{Code: api.StaleRevision, Message: "adopt the book: revision is stale: its epoch is 2, not 1"}
	s := &screen{env: map[string]string{"IPAMD_SOCKET": w.socket}}
	if w.ctl(t, s, "book", "adopt", "--confirm", "1"); !strings.HasSuffix(s.err.String(), "ipamctl book adopt\n") || strings.Contains(s.err.String(), "show") {
		t.Errorf("of another epoch: %q", s.err.String())
	}
}
