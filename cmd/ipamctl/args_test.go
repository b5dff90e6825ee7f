package main

import (
	"strings"
	"testing"
)

// Each way to type it wrong is refused with the name of what is wrong,
// before the daemon is asked anything.
func TestBadCommandLines(t *testing.T) {
	for _, bad := range []struct{ line, names string }{
		{"frobnicate", `"frobnicate"`},
		{"--output xml leases", "json"},
		{"leases -o", "-o"},
		{"leases -q -o json", "--quiet"},
		{"leases --timeout 0s", "--timeout"},
		{"leases --timeout -1s", "--timeout"},
		{"leases --timeout soon", "timeout"},
		{"leases --colour", "--colour; did you mean --no-color?"},
		{"leases --stat bound", "--stat; did you mean --state?"},
		{"leases --sokcet /tmp/s", "--sokcet; did you mean --socket?"},
		{"pool apply default --prefx 10.0.0.0/24", "--prefx; did you mean --prefix?"},
		{"leases --frobnicate", "--frobnicate\n"},
		{"leases -x", "-x\n"},
		{"status now", `"now"`},
		{"status --all", "--all"},
		{"leases 10.8.64.2", `"10.8.64.2"`},
		{"leases --state alive", "quarantined"},
		{"leases --state ''", "quarantined"},
		{"leases --sandbox", "--sandbox"},
		{"show", "lease id or a sandbox"},
		{"show a b", "lease id or a sandbox"},
		{"show ''", "lease id or a sandbox"},
		{"show web-1 --evidence", "--evidence"},
		{"whois", "IP address"},
		{"whois web-1", `"web-1"`},
		{"whois 10.8.64", `"10.8.64"`},
		{"whois 10.8.64.0/24", "is a prefix"},
		{"whois 10.8.64.7/24", "map --within 10.8.64.0/24"},
		{"whois fe80::1%eth0", "write fe80::1\n"},
		{"whois ::ffff:10.8.64.7", "write 10.8.64.7"},
		{"whois fe80::1%eth0 -o json", `"field": "ip"`},
		{"whois 10.8.64.2 10.8.64.3", "IP address"},
		{"history a b", "IP address, a sandbox or a lease id"},
		{"history --since yesterday", "--since"},
		{"history --since 2026-11-31", "--since"},
		{"history --since -1h", "--since"},
		{"history --limit 0", "--limit"},
		{"history --limit -5", "--limit"},
		{"history --limit many", "limit"},
		{"map a b", "a pool"},
		{"map --within 10.8.64.9-10.8.64.2", "--within"},
		{"map --within here", "--within"},
		{"map --within fd00::-10.8.64.2", "--within"},
		{"map --within 192.0.2.0/24", "192.0.2.0"},
		{"allocate", "sandbox"},
		{"allocate ''", "sandbox"},
		{"allocate a b", "sandbox"},
		{"allocate a --attempt 0", "--attempt"},
		{"allocate a --attempt -1", "--attempt"},
		{"allocate a --attempt x", "attempt"},
		{"allocate a --family v5", "dual"},
		{"allocate a --bind-within 0s", "--bind-within"},
		{"allocate a --bind-within -5m", "--bind-within"},
		{"allocate a --bind-within long", "bind-within"},
		{"allocate a --label x", "--label"},
		{"allocate a --label =x", "--label"},
		{"allocate a --label x=1 --label x=2", "--label"},
		{"bind", "lease id"},
		{"bind 10.8.64.2", "whois"},
		{"bind " + id(2) + " --container web-1", "--container"},
		{"bind " + id(2) + " --container /web-1", "--container"},
		{"bind " + id(2) + " --container sandbox/", "--container"},
		{"bind " + id(2) + " --container a/b/c", "--container"},
		{"bind " + id(2) + " --ip 10.8.64.2", "--ip"},
		{"release", "lease id"},
		{"release 10.8.64.2", "whois"},
		{"release fd00:8:64::2", "whois"},
		{"release " + id(2) + " --wait -1s", "--wait"},
		{"release " + id(2) + " --wait x", "wait"},
		{"release " + id(2) + " --force", "--force"},
		{"quarantine free 10.8.64.7", `"free"`},
		{"book check /var/lib/ipamd/book.db", `"/var/lib/ipamd/book.db"`},
		{"book restore", "a file"},
		{"book restore /root/b.db", "ipamd restore /root/b.db --confirm"},
		{"book import /root/netdb.db", "ipamd import /root/netdb.db --confirm"},
		{"quarantine ls 10.8.64.7", `"10.8.64.7"`},
		{"quarantine add", "IP address"},
		{"quarantine add 10.8.64.9", "--reason"},
		{"quarantine add 10.8.64.9 --reason '  '", "--reason"},
		{"quarantine add printer --reason x", `"printer"`},
		{"quarantine clear", "IP address"},
		{"quarantine clear web-1", `"web-1"`},
		{"pools default", `"default"`},
		{"doctor 10.8.64.2", `"10.8.64.2"`},
		{"doctor --fix", "--fix"},
		{"reconcile now", `"now"`},
		{"reconcile --preview --confirm", "--confirm exclude each other"},
		{"reconcile --force", "--force"},
		{"version 1", `"1"`},
		{"completion bash zsh", "zsh"},
		{"completion fish2", "did you mean fish?"},
		{"completion ''", `""`},
		{"allocate '\xff'", `\xff`},
		{"allocate a --label 'k=\xff'", `\xff`},
	} {
		t.Run(bad.line, func(t *testing.T) {
			w := runner().serve(t)
			s := &screen{}
			code := w.ctl(t, s, words(bad.line)...)
			if code != exitUsage {
				t.Errorf("exit %d: %s", code, s.err.String())
			}
			if !strings.Contains(s.err.String(), bad.names) {
				t.Errorf("%q is not named in %q", bad.names, s.err.String())
			}
			if s.out.Len() > 0 {
				t.Errorf("stdout: %q", s.out.String())
			}
			for _, a := range w.asked {
				if a.verb != "pools" && a.verb != "leases" { // map asks those before it knows
					t.Errorf("the daemon was asked %s", a.verb)
				}
			}
		})
	}
}
