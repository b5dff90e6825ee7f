package main

import (
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/ipamd/ipamd/internal/build"
)

// Every verb says in one sentence what it does, and shows how.
func TestEveryVerbExplainsItself(t *testing.T) {
	c := newCtl(streams{getenv: func(string) string { return "" }, now: time.Now}, nil, build.Info{})
	var visit func(cmd *cobra.Command)
	visit = func(cmd *cobra.Command) {
		if cmd.Short == "" || strings.HasSuffix(cmd.Short, ".") {
			t.Errorf("%s: Short is %q", cmd.CommandPath(), cmd.Short)
		}
		if cmd.Long == "" {
			t.Errorf("%s has no Long", cmd.CommandPath())
		}
		if cmd.Runnable() && !strings.Contains(cmd.Example, strings.TrimSuffix(cmd.CommandPath(), " ")) {
			t.Errorf("%s: Example is %q", cmd.CommandPath(), cmd.Example)
		}
		if cmd.Runnable() && cmd.Args == nil {
			t.Errorf("%s takes any arguments", cmd.CommandPath())
		}
		for line := range strings.Lines(cmd.Long + "\n" + cmd.UsageString()) {
			if len(strings.TrimRight(line, "\n")) > 80 {
				t.Errorf("%s: a line is too long for a terminal: %q", cmd.CommandPath(), line)
			}
		}
		for _, sub := range cmd.Commands() {
			visit(sub)
		}
	}
	visit(c.root)
}

// What tab offers, and that it stays silent without a daemon.
func TestCompletion(t *testing.T) {
	w := runner()
	w.pools[1].Name = "lab\x1b[2J"
	w.serve(t)
	for line, want := range map[string][]string{
		"leases --sandbox ":       {"web-1\tsandbox", "job-17\tsandbox"},
		"leases --state ":         {"reserved", "quarantined"},
		"leases --pool ":          {"default"},
		"show ":                   {"web-1\tsandbox", id(2) + "\t10.8.64.2 bound web-1"},
		"whois ":                  {"10.8.64.2\tbound web-1", "10.8.64.7\tquarantined -"},
		"history ":                {"10.8.64.2\tbound web-1", "web-1\tsandbox"},
		"history --lease ":        {id(3)},
		"map ":                    {"default"},
		"allocate x --pool ":      {"default"},
		"allocate x --family ":    {"v4", "v6", "dual"},
		"bind ":                   {id(2)},
		"release ":                {id(2)},
		"quarantine clear ":       {"10.8.64.7\tquarantined -"},
		"leases -o ":              {"table", "json", "yaml"},
		"release " + id(2) + " ":  {":4"},
		"whois 10.8.64.2 ":        {":4"},
		"map default ":            {":4"},
		"show web-1 --timeout 1s": {},
	} {
		ask := func(socket string) string {
			s := &screen{env: map[string]string{"IPAMD_SOCKET": socket}}
			fields := strings.Split(line, " ")
			if code := w.ctl(t, s, append([]string{"__complete"}, fields...)...); code != 0 {
				t.Errorf("%s: exit %d: %s", line, code, s.err.String())
			}
			return s.out.String()
		}
		got := ask(w.socket)
		for _, value := range want {
			if !strings.Contains(got, value) {
				t.Errorf("%s: %q is not offered in %q", line, value, got)
			}
		}
		if strings.ContainsAny(got, "\x1b") || strings.Contains(got, "evil") && !strings.Contains(got, `"evil`) {
			t.Errorf("%s: a name reaches the shell raw: %q", line, got)
		}
		if ended := strings.Contains(got, " cooling ") || strings.Contains(got, " quarantined "); line == "release " && ended {
			t.Errorf("%s: a lease that has ended is offered in %q", line, got)
		}
		if down := ask(w.socket + ".none"); strings.Contains(down, "10.8") || strings.Contains(strings.ToLower(down), "error") {
			t.Errorf("%s without a daemon: %q", line, down)
		}
	}
	help := &screen{}
	w.ctl(t, help, "completion", "--help")
	for _, want := range []string{"Examples:", "source <(ipamctl completion bash)", "ipamctl completion zsh >", "ipamctl completion fish >"} {
		if !strings.Contains(help.out.String(), want) {
			t.Errorf("the help of completion does not say %q: %s", want, help.out.String())
		}
	}
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		s := &screen{}
		if code := w.ctl(t, s, "completion", shell); code != 0 || !strings.Contains(s.out.String(), "ipamctl") {
			t.Errorf("%s: exit %d", shell, code)
		}
	}
}
