package main

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// metricsPage tells people what there is to measure and to read.
const metricsPage = "../../docs/METRICS.md"

// A described metric is one that a daemon exposes.
type described struct {
	name, help string
	labels     []string
}

var descriptor = regexp.MustCompile(`^Desc\{fqName: "(ipamd_\w+)", help: "(.*)", unit: "", constLabels: \{\}, variableLabels: \{(.*)\}\}$`)

// everyMetric lists what a daemon exposes of its own, by name.
func everyMetric(t *testing.T) map[string]described {
	t.Helper()
	m := newMetrics()
	if err := m.follow(new(program)); err != nil {
		t.Fatal(err)
	}
	all := make(chan *prometheus.Desc)
	go func() {
		m.registry.Describe(all)
		close(all)
	}()
	found := make(map[string]described)
	for d := range all {
		if at := descriptor.FindStringSubmatch(d.String()); at != nil {
			one := described{name: at[1], help: at[2]}
			if at[3] != "" {
				one.labels = strings.Split(at[3], ",")
			}
			found[one.name] = one
		}
	}
	if len(found) < 30 {
		t.Fatalf("only %d metrics were found: is a descriptor spelled another way?", len(found))
	}
	return found
}

// table returns the rows of the page's table that begins with a header.
func table(t *testing.T, header string) []string {
	t.Helper()
	page, err := os.ReadFile(metricsPage)
	if err != nil {
		t.Fatal(err)
	}
	_, after, ok := strings.Cut(string(page), header+"\n")
	if !ok {
		t.Fatalf("docs/METRICS.md has no table %s", header)
	}
	var rows []string
	for line := range strings.Lines(after) {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "|") {
			break
		}
		rows = append(rows, line)
	}
	return rows[1:] // without the rule below the header
}

// sameRows fails the test when a table is not what the code has, and prints
// what it should be.
func sameRows(t *testing.T, got, want []string) {
	t.Helper()
	slices.Sort(want)
	sorted := slices.Sorted(slices.Values(got))
	if slices.Equal(sorted, want) {
		return
	}
	for _, row := range want {
		if !slices.Contains(got, row) {
			t.Errorf("docs/METRICS.md lacks this row, or has another one:\n%s", row)
		}
	}
	for _, row := range got {
		if !slices.Contains(want, row) {
			t.Errorf("docs/METRICS.md has a row for what is not there:\n%s", row)
		}
	}
}

// Every metric is on the page, with its labels and its help.
func TestEveryMetricIsDocumented(t *testing.T) {
	var want []string
	for _, d := range everyMetric(t) {
		want = append(want, fmt.Sprintf("| `%s` | %s | %s |", d.name, strings.Join(d.labels, ", "), d.help))
	}
	sameRows(t, table(t, "| metric | labels | meaning |"), want)
}
