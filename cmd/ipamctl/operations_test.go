package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ipamd/ipamd/internal/build"
	"github.com/ipamd/ipamd/internal/cli"
	"github.com/ipamd/ipamd/internal/term"
	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/ipamd/ipamd/internal/realtest"
)

// read returns a file of the module.
func read(t *testing.T, file string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("../..", file))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// anchors are the places in a page that a link can lead to: its own, and its headings.
func anchors(t *testing.T, file string) (all []string) {
	t.Helper()
	page := read(t, file)
	for _, m := range regexp.MustCompile(`<a id="([^"]+)"></a>`).FindAllStringSubmatch(page, -1) {
		if slices.Contains(all, m[1]) {
			t.Errorf("%s: two places are called %s", file, m[1])
		}
		all = append(all, m[1])
	}
	for _, m := range regexp.MustCompile(`(?m)^#+ ([A-Z][a-z ]+)$`).FindAllStringSubmatch(page, -1) {
		all = append(all, strings.ReplaceAll(strings.ToLower(m[1]), " ", "-"))
	}
	return all
}

// Every kind of finding that the daemon's source can make, or that the page
// about the socket lists, is explained, and nothing is that does not exist.
func TestEachFindingIsExplained(t *testing.T) {
	kinds := make(map[string]bool)
	for _, m := range regexp.MustCompile("`([a-z_]+)`").FindAllStringSubmatch(tableOf(t, "| kind | what disagrees |"), -1) {
		kinds[m[1]] = true
	}
	listed := len(kinds)
	for _, pattern := range []string{"reconciler/*.go", "doctor/*.go", "cmd/ipamd/*.go"} {
		files, err := filepath.Glob(filepath.Join("../..", pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			source := read(t, strings.TrimPrefix(file, "../../"))
			for _, m := range regexp.MustCompile(`Finding\{Kind: "([a-z_]+)"`).FindAllStringSubmatch(source, -1) {
				kinds[m[1]] = true
			}
			if filepath.Base(file) == "diagnose.go" { // its findings about leases
				for _, m := range regexp.MustCompile(`\badd\("([a-z_]+)", `).FindAllStringSubmatch(source, -1) {
					kinds[m[1]] = true
				}
			}
		}
	}
	if listed < 15 || len(kinds) < listed {
		t.Fatalf("%d kinds are listed and %d found: are they still where they were?", listed, len(kinds))
	}
	explained := kindsExplained()
	for kind := range kinds {
		if !slices.Contains(explained, kind) {
			t.Errorf("docs/OPERATIONS.md has no section for %s", kind)
		}
	}
	for _, kind := range explained {
		if !strings.HasPrefix(kind, "Ipamd") && !kinds[kind] {
			t.Errorf("docs/OPERATIONS.md explains %s, which nothing finds", kind)
		}
	}
}

// tableOf returns the rows of the table in docs/API.md that begins so.
func tableOf(t *testing.T, head string) string {
	t.Helper()
	_, rest, found := strings.Cut(read(t, "docs/API.md"), head+"\n|---|---|\n")
	if !found {
		t.Fatalf("docs/API.md has no table %s", head)
	}
	var rows strings.Builder
	for line := range strings.Lines(rest) {
		if !strings.HasPrefix(line, "|") {
			break
		}
		cell, _, _ := strings.Cut(line[1:], "|")
		rows.WriteString(cell)
	}
	return rows.String()
}

// Every alert names the command that explains it, and what is explained is an
// alert.
func TestEachAlertIsExplained(t *testing.T) {
	var rules struct {
		Groups []struct {
			Rules []struct {
				Alert       string
				Annotations map[string]string
			}
		}
	}
	if err := yaml.Unmarshal([]byte(read(t, "deploy/prometheus/alerts.yaml")), &rules); err != nil {
		t.Fatal(err)
	}
	kinds, alerts := kindsExplained(), make(map[string]bool)
	for _, group := range rules.Groups {
		for _, rule := range group.Rules {
			if rule.Alert == "" {
				continue
			}
			alerts[rule.Alert] = true
			if output := rule.Annotations["runbook"]; output != explain(rule.Alert) || !slices.Contains(kinds, rule.Alert) {
				t.Errorf("%s leads to %s, or is not explained", rule.Alert, output)
			}
		}
	}
	if len(alerts) < 8 {
		t.Errorf("only %d alerts: are they still found?", len(alerts))
	}
	for _, kind := range kinds {
		if strings.HasPrefix(kind, "Ipamd") && !alerts[kind] {
			t.Errorf("docs/OPERATIONS.md explains %s, which is no alert", kind)
		}
	}
}

// Every link to a place in a page for operators leads to one, from each page that has such links.
func TestOperationsLinks(t *testing.T) {
	places := map[string][]string{}
	for _, page := range []string{"OPERATIONS.md", "FEATURES.md"} {
		places[page] = anchors(t, "docs/"+page)
	}
	found := 0
	for _, page := range []string{"OPERATIONS.md", "FEATURES.md", "API.md", "METRICS.md", "CNI.md", "DOCKER.md"} {
		for _, m := range regexp.MustCompile(`\]\(([A-Z]+\.md)?#([^)]+)\)`).FindAllStringSubmatch(read(t, "docs/"+page), -1) {
			to := m[1]
			if to == "" {
				to = page
			}
			if there, checked := places[to]; checked {
				found++
				if !slices.Contains(there, m[2]) {
					t.Errorf("docs/%s links to %s#%s, which is not there", page, to, m[2])
				}
			}
		}
	}
	if found < 50 {
		t.Errorf("only %d links are found", found)
	}
}

// typed are the command lines of our programs that a document tells a person
// to type: after a prompt, or quoted.
func typed(page string) (lines []string) {
	for _, m := range regexp.MustCompile("(?m)^    \\$ (.*)$|`([^`\n]+)`").FindAllStringSubmatch(page, -1) {
		for _, line := range regexp.MustCompile(`\|\|?|&&|;`).Split(m[1]+m[2], -1) {
			line = strings.TrimSpace(line)
			if program, _, _ := strings.Cut(line, " "); (program == "ipamctl" || program == "ipamd") && !slices.Contains(lines, line) {
				lines = append(lines, line)
			}
		}
	}
	return lines
}

// Every command that the pages name is one: its verbs and its flags are there,
// and it has as many arguments as it takes.
func TestNamedCommandsParse(t *testing.T) {
	realtest.Long(t)
	daemon := realtest.Program(t, "cmd/ipamd")
	lines := typed(read(t, "docs/OPERATIONS.md") + read(t, "docs/FEATURES.md"))
	if len(lines) < 30 {
		t.Errorf("only %d commands are named: are they still found?", len(lines))
	}
	for _, line := range lines {
		args := commandLine(line)
		if args[0] == "ipamctl" {
			cmd, err := parse(args[1:])
			if err == nil {
				err = cmd.ValidateArgs(cmd.Flags().Args())
			}
			if err != nil {
				t.Errorf("%s: %v", line, err)
			}
			continue
		}
		out, err := exec.Command(daemon, append(args[1:], "--help")...).CombinedOutput()
		if err != nil || len(args) > 1 && !strings.Contains(string(out), "ipamd "+args[1]) {
			t.Errorf("%s: %v: %s", line, err, out)
		}
	}
}

// So is every command of ipamctl that an alert, a finding or a hint names:
// verb and flags, since what follows may be prose.
func TestCommandsInMessagesParse(t *testing.T) {
	named := regexp.MustCompile(`\bipamctl [a-z-]+(?: --[a-z-]+(?: (?:[a-zA-Z]+|%s|%\[1\]s))?)*`)
	found := 0
	for _, file := range []string{"deploy/prometheus/alerts.yaml", "doctor/examine.go", "reconciler/diagnose.go", "reconciler/finding.go", "reconciler/pass.go", "orphans/sweep.go", "cmd/ipamctl/hint.go", "cmd/ipamctl/stuck.go"} {
		text := strings.Join(strings.Fields(read(t, file)), " ") // a line may end in the middle of a command
		for _, line := range named.FindAllString(text, -1) {
			found++
			if _, err := parse(strings.Fields(line)[1:]); err != nil {
				t.Errorf("%s: %s: %v", file, line, err)
			}
		}
	}
	if found < 30 {
		t.Errorf("only %d commands are named: are they still found?", found)
	}
}

// parse reads a command line of ipamctl up to its arguments.
func parse(args []string) (*cobra.Command, error) {
	c := newCtl(streams{getenv: func(string) string { return "" }, now: time.Now}, nil, build.Info{})
	cmd, rest, err := c.root.Find(args)
	if err == nil && cmd == c.root && len(args) > 0 {
		err = cli.KnownVerb(cmd, args)
	}
	if err == nil {
		err = cmd.ParseFlags(rest)
	}
	return cmd, err
}

// What is printed fits the terminal but for examples, and has no marks of the
// page's own.
func TestExplain(t *testing.T) {
	for _, kind := range kindsExplained() {
		s := &screen{terminal: true, columns: 60, env: map[string]string{"NO_COLOR": "1"}}
		if code := (&world{}).ctl(t, s, "explain", kind); code != exitOK {
			t.Fatalf("%s: exit %d: %s", kind, code, s.err.String())
		}
		got := s.out.String()
		if !strings.HasPrefix(got, kind+"\n") || strings.Contains(got, "](") || strings.Contains(got, "**") || strings.Contains(got, "|---") || len(got) < 100 {
			t.Errorf("%s:\n%s", kind, got)
		}
		for line := range strings.Lines(got) {
			if term.Width(strings.TrimRight(line, "\n")) > 60 && !strings.HasPrefix(line, "    ") {
				t.Errorf("%s has a line of %d: %s", kind, term.Width(line), line)
			}
		}
	}
	s := &screen{}
	(&world{}).ctl(t, s, "explain", "releasing_stuck")
	golden(t, "explain", s.out.String())
	if code := (&world{}).ctl(t, &screen{}, "explain", "nothing"); code != exitGone {
		t.Errorf("what is not explained: exit %d", code)
	}
}

// commandLine splits a line as a shell does with double quotes.
func commandLine(line string) (args []string) {
	for i, piece := range strings.Split(line, `"`) {
		if i%2 == 1 {
			args = append(args, piece)
		} else {
			args = append(args, strings.Fields(piece)...)
		}
	}
	return args
}
