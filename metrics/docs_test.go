package metrics

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/ipamd/ipamd/internal/doctest"
	"github.com/prometheus/client_golang/prometheus"
)

// metricsPage is the page of what there is to measure and to read.
const metricsPage = "docs/METRICS.md"

// A described metric is one that a daemon exposes.
type described struct {
	name, help string
	labels     []string
}

var descriptor = regexp.MustCompile(`^Desc\{fqName: "(ipamd_\w+)", help: "(.*)", unit: "", constLabels: \{\}, variableLabels: \{(.*)\}\}$`)

// everyMetric lists what a daemon exposes of its own, by name.
func everyMetric(t *testing.T) map[string]described {
	t.Helper()
	m := New()
	if err := m.Follow(Daemon{}); err != nil {
		t.Fatal(err)
	}
	all := make(chan *prometheus.Desc)
	go func() {
		m.Registry.Describe(all)
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

// Every metric is on the page, with its labels and its help.
func TestEveryMetricIsDocumented(t *testing.T) {
	var want []string
	for _, d := range everyMetric(t) {
		want = append(want, fmt.Sprintf("| `%s` | %s | %s |", d.name, strings.Join(d.labels, ", "), d.help))
	}
	doctest.SameRows(t, metricsPage, doctest.Rows(t, metricsPage, "| metric | labels | meaning |"), want)
}
