package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/internal/term"
)

// On a narrow terminal no line is wider than it, but for a word that is wider
// itself, and every address is there whole.
func TestNarrowTerminal(t *testing.T) {
	w := runner()
	w.status.Version = "v0.0.0-20261121200942-9d46ff3abcde+dirty"
	w.findings = []api.Finding{
		{Kind: "conflict", Address: "10.8.64.7", Detail: `held by sandbox "web-1", but the netns witness sees it under another on veth9`, Since: before(3e9), Repair: "ipamctl whois 10.8.64.7"},
		{Kind: "stray", Address: "fd00:8:64::2", Detail: "its runtime is gone", Repair: "ipamctl whois fd00:8:64::2"},
	}
	w.serve(t)
	var b strings.Builder
	for _, line := range []string{"doctor", "leases", "map default", "status"} {
		s := &screen{terminal: true, columns: 40, env: map[string]string{"NO_COLOR": "1"}}
		w.ctl(t, s, words(line)...)
		out := s.out.String()
		for line := range strings.Lines(out) {
			if n := term.Width(strings.TrimRight(line, "\n")); n > 40 && len(strings.Fields(line)) > 1 {
				t.Errorf("a line of %d columns: %q", n, line)
			}
		}
		if strings.Contains(out, "…") {
			t.Errorf("%s cuts something off:\n%s", line, out)
		}
		addrs := []string{"10.8.64.7", "fd00:8:64::2"}
		switch line {
		case "status":
			addrs = []string{w.status.Version + "\nis ready"}
		case "map default":
			addrs = []string{"10.8.64.0/24", "10.8.64.1", "10.8.64.240", "fd00:8:64::/64"}
		}
		for _, want := range addrs {
			if !strings.Contains(out, want) {
				t.Errorf("%s hides %q:\n%s", line, want, out)
			}
		}
		fmt.Fprintf(&b, "$ ipamctl %s   # 40 columns\n%s\n", line, out)
	}
	golden(t, "narrow", b.String())
}
