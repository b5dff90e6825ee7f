package main

import (
	"debug/buildinfo"
	"fmt"
	"os"
	"runtime"
	"strings"
	"text/tabwriter"
	"time"

	"golang.org/x/sys/unix"
)

// The measured part of a document is between these lines.
const (
	measuredBegin = "<!-- measured: written by `make bench-docs` -->"
	measuredEnd   = "<!-- end of what was measured -->"
)

// table has a line for each row, in columns or in Markdown.
func table(rows []row, markdown bool) string {
	head := []string{"goal", "what", "limit", "ratio", "spread", "rounds", "", "medians"}
	var out strings.Builder
	if markdown {
		fmt.Fprintf(&out, "| %s |\n|%s\n", strings.Join(head, " | "), strings.Repeat("---|", len(head)))
		for _, r := range rows {
			escaped := strings.NewReplacer("<", "&lt;", "|", "&#124;").Replace(strings.Join(r.cells(), "\t"))
			fmt.Fprintf(&out, "| %s |\n", strings.ReplaceAll(escaped, "\t", " | "))
		}
		return out.String()
	}
	columns := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(columns, strings.Join(head, "\t"))
	for _, r := range rows {
		fmt.Fprintln(columns, strings.Join(r.cells(), "\t"))
	}
	columns.Flush()
	return out.String()
}

// rewrite replaces the measured part of a document.
func rewrite(path, about, table string) error {
	old, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	before, rest, begins := strings.Cut(string(old), measuredBegin)
	_, after, ends := strings.Cut(rest, measuredEnd)
	if !begins || !ends {
		return fmt.Errorf("%s has not the lines %q and %q", path, measuredBegin, measuredEnd)
	}
	body := fmt.Sprintf("%s%s\n\n```\n%s\n```\n\n%s\n%s%s", before, measuredBegin, about, table, measuredEnd, after)
	return os.WriteFile(path, []byte(body), 0o644)
}

// about says what the figures are taken on and of which programs: a machine whose load
// is above its processors is no place for milliseconds.
func (b *bench) about() (string, error) {
	version, err := moduleVersion(b.program, "github.com/ipamd/ipamd")
	if err != nil {
		return "", fmt.Errorf("%w: make build", err)
	}
	var kernel unix.Utsname
	if err := unix.Uname(&kernel); err != nil {
		return "", err
	}
	load, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "", err
	}
	lines := []string{
		time.Now().UTC().Format(time.RFC1123),
		"ipamd " + version,
		fmt.Sprintf("%d processors, Linux %s, %s", runtime.NumCPU(), unix.ByteSliceToString(kernel.Release[:]), runtime.Version()),
		"load before the run: " + strings.Join(strings.Fields(string(load))[:3], ", ") + " of 1, 5 and 15 minutes",
		fmt.Sprintf("%d calls of a kind a round, %d callers are many, %d leases are a full book, %d ports a full bridge", b.calls, b.callers, b.leases, b.sandboxes),
	}
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	for _, p := range []struct{ program, module string }{{b.plugin, "github.com/containernetworking/plugins"},
		{self, "github.com/aws/amazon-vpc-cni-k8s"}, {self, "github.com/moby/moby/v2"}, {self, "modernc.org/sqlite"}} {
		if version, err := moduleVersion(p.program, p.module); err == nil {
			lines = append(lines, "peer: "+p.module+" "+version)
		}
	}
	return strings.Join(lines, "\n"), nil
}

// moduleVersion is the version of a module in a program, as built.
func moduleVersion(program, module string) (string, error) {
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		return "", fmt.Errorf("read what %s is made of: %w", program, err)
	}
	for _, m := range append(info.Deps, &info.Main) {
		if m.Path == module {
			return m.Version, nil
		}
	}
	return "", fmt.Errorf("%s has no %s in it", program, module)
}
