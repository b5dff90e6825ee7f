package metrics

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/ipamd/ipamd/internal/doctest"
	"github.com/ipamd/ipamd/internal/realtest"
	"go.yaml.in/yaml/v3"
)

const (
	alertsFile    = "../deploy/prometheus/alerts.yaml"
	alertsTests   = "../deploy/prometheus/alerts_test.yaml"
	dashboardFile = "../deploy/grafana/ipamd.json"
)

type alert struct {
	Alert, Expr, For string
	Labels           map[string]string
	Annotations      map[string]string
}

func alerts(t *testing.T) (all []alert) {
	t.Helper()
	var file struct {
		Groups []struct{ Rules []alert }
	}
	decode(t, alertsFile, &file)
	for _, g := range file.Groups {
		all = append(all, g.Rules...)
	}
	return all
}

func decode(t *testing.T, file string, into any) {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(b, into); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
}

// Each alert fires for its reason, and not for what looks like it: the cases
// are in alerts_test.yaml, and every alert has some of both.
func TestAlertsFireAndDoNot(t *testing.T) {
	realtest.Long(t)
	if output, ok := doctest.Promtool(t, nil, "check", "rules", "--lint=all", "--lint-fatal", alertsFile); !ok {
		t.Errorf("the rules: %s", output)
	}
	if output, ok := doctest.Promtool(t, nil, "test", "rules", alertsTests); !ok {
		t.Errorf("their cases: %s", output)
	}
	var file struct {
		Tests []struct {
			Cases []struct {
				Alertname string
				Expected  []any `yaml:"exp_alerts"`
			} `yaml:"alert_rule_test"`
		}
	}
	decode(t, alertsTests, &file)
	fires, silent := make(map[string]bool), make(map[string]bool)
	for _, test := range file.Tests {
		for _, c := range test.Cases {
			fires[c.Alertname] = fires[c.Alertname] || len(c.Expected) > 0
			silent[c.Alertname] = silent[c.Alertname] || len(c.Expected) == 0
		}
	}
	for _, a := range alerts(t) {
		if !fires[a.Alert] || !silent[a.Alert] {
			t.Errorf("%s: a case in which it fires: %v, in which it does not: %v", a.Alert, fires[a.Alert], silent[a.Alert])
		}
	}
}

// A case that is wrong is found: an alert that never fires turns its own red.
func TestADeadAlertIsFound(t *testing.T) {
	realtest.Long(t)
	rules, err := os.ReadFile(alertsFile)
	if err != nil {
		t.Fatal(err)
	}
	cases, err := os.ReadFile(alertsTests)
	if err != nil {
		t.Fatal(err)
	}
	const lives, dead = "ipamd_ready == 0 unless", "ipamd_ready == 2 unless"
	if !bytes.Contains(rules, []byte(lives)) {
		t.Fatalf("alerts.yaml has no %q", lives)
	}
	dir := t.TempDir()
	for name, content := range map[string][]byte{"alerts.yaml": bytes.Replace(rules, []byte(lives), []byte(dead), 1), "alerts_test.yaml": cases} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if output, ok := doctest.Promtool(t, nil, "test", "rules", filepath.Join(dir, "alerts_test.yaml")); ok || !strings.Contains(output, "IpamdNotReady") {
		t.Errorf("it is not found: %s", output)
	}
}

var capital = regexp.MustCompile(`(.)([A-Z])`)

// Each alert says what is wrong, what to do next, and where to read on.
func TestAlertsSayWhatIsNext(t *testing.T) {
	operations, err := os.ReadFile("../docs/OPERATIONS.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range alerts(t) {
		if a.Annotations["summary"] == "" || !strings.Contains(a.Annotations["description"], "Next: ") ||
			!slices.Contains([]string{"warning", "critical"}, a.Labels["severity"]) {
			t.Errorf("%s lacks a summary, a next command or a severity: %+v", a.Alert, a)
		}
		anchor := "alert-" + strings.ToLower(capital.ReplaceAllString(a.Alert, "$1-$2"))
		if want := "ipamctl explain " + a.Alert; a.Annotations["runbook"] != want {
			t.Errorf("%s leads to %s, not to %s", a.Alert, a.Annotations["runbook"], want)
		}
		if !strings.Contains(string(operations), `id="`+anchor+`"`) && !strings.Contains(string(operations), `name="`+anchor+`"`) &&
			!slices.Contains(headings(string(operations)), anchor) {
			t.Errorf("docs/OPERATIONS.md has no anchor %s", anchor)
		}
	}
}

var noAnchor = regexp.MustCompile(`[^a-z0-9 _-]`)

// headings are the anchors that a page's headings have where it is read.
func headings(page string) (anchors []string) {
	for line := range strings.Lines(page) {
		if text, ok := strings.CutPrefix(strings.TrimLeft(line, "#"), " "); ok && strings.HasPrefix(line, "#") {
			anchors = append(anchors, strings.ReplaceAll(noAnchor.ReplaceAllString(strings.ToLower(strings.TrimSpace(text)), ""), " ", "-"))
		}
	}
	return anchors
}

// expressions are what the alerts and the dashboard ask of Prometheus.
func expressions(t *testing.T) (all []string) {
	t.Helper()
	for _, a := range alerts(t) {
		all = append(all, a.Expr)
	}
	b, err := os.ReadFile(dashboardFile)
	if err != nil {
		t.Fatal(err)
	}
	var board any
	if err := json.Unmarshal(b, &board); err != nil {
		t.Fatal(err)
	}
	var walk func(any)
	walk = func(x any) {
		switch x := x.(type) {
		case map[string]any:
			for key, v := range x {
				if text, ok := v.(string); ok && (key == "expr" || key == "query" && strings.Contains(text, "ipamd_")) {
					all = append(all, text)
				}
				walk(v)
			}
		case []any:
			for _, v := range x {
				walk(v)
			}
		}
	}
	walk(board)
	return all
}

var (
	mentioned = regexp.MustCompile(`\b(ipamd_[a-z_]+)(?:\{([^}]*)\})?`)
	matcher   = regexp.MustCompile(`([a-z_]+)\s*(?:=~|!~|!=|=)`)
	grouping  = regexp.MustCompile(`\b(?:by|without|ignoring|on)\s*\(([^)]*)\)`)
)

// What alerts and dashboard ask for, a daemon exposes: each metric with each
// label. And they ask for most of what there is.
func TestAlertsAndDashboardAskForWhatIsExposed(t *testing.T) {
	known := everyMetric(t)
	scraped := []string{"instance", "job", "le"} // added on the way
	asked := make(map[string]bool)
	for _, expr := range expressions(t) {
		var labels []string
		for _, m := range mentioned.FindAllStringSubmatch(expr, -1) {
			name := m[1]
			for _, suffix := range []string{"_bucket", "_sum", "_count"} {
				if base := strings.TrimSuffix(name, suffix); known[base].name != "" {
					name = base
				}
			}
			if known[name].name == "" {
				t.Errorf("no collector exposes %s, which is asked for: %s", m[1], expr)
				continue
			}
			asked[name] = true
			labels = append(labels, known[name].labels...)
			for _, l := range matcher.FindAllStringSubmatch(m[2], -1) {
				if !slices.Contains(known[name].labels, l[1]) && !slices.Contains(scraped, l[1]) {
					t.Errorf("%s has no label %s: %s", name, l[1], expr)
				}
			}
		}
		for _, g := range grouping.FindAllStringSubmatch(expr, -1) {
			for _, l := range strings.Split(g[1], ",") {
				if l = strings.TrimSpace(l); l != "" && !slices.Contains(labels, l) && !slices.Contains(scraped, l) {
					t.Errorf("no metric of it has a label %s: %s", l, expr)
				}
			}
		}
	}
	for name := range known {
		if !asked[name] {
			t.Logf("neither alert nor dashboard asks for %s", name)
		}
	}
	if len(asked) < len(known)*3/4 {
		t.Errorf("only %d of %d metrics are asked for", len(asked), len(known))
	}
}

var counted = regexp.MustCompile(`increase\((ipamd_[a-z_]+)(?:\{([a-z]+)=~"([^"]+)"\})?\[`)

// What an alert counts is seen the first time that it happens: its counter is 0
// until then, and not missing, for each value that the alert names.
func TestAlertsSeeTheFirstEvent(t *testing.T) {
	families, err := New().Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	begun := make(map[string]bool)
	for _, f := range families {
		begun[f.GetName()] = true
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				begun[f.GetName()+" "+l.GetName()+"="+l.GetValue()] = true
			}
		}
	}
	named := 0
	for _, a := range alerts(t) {
		for _, m := range counted.FindAllStringSubmatch(a.Expr, -1) {
			want := []string{m[1]}
			if m[2] != "" {
				for value := range strings.SplitSeq(m[3], "|") {
					want = append(want, m[1]+" "+m[2]+"="+value)
				}
			}
			for _, series := range want {
				named++
				if !begun[series] {
					t.Errorf("%s counts %s, which a new daemon does not expose", a.Alert, series)
				}
			}
		}
	}
	if named < 5 {
		t.Errorf("only %d series of counters are found in the alerts", named)
	}
}

// The dashboard's questions can be read by Prometheus, with its variables
// filled in.
func TestDashboardAsksInPromQL(t *testing.T) {
	fill := strings.NewReplacer("$__rate_interval", "5m", "$instance", "r1", "$pool", "default", "$__range", "1h")
	type rule struct {
		Record string `yaml:"record"`
		Expr   string `yaml:"expr"`
	}
	var rules []rule
	for i, expr := range expressions(t) {
		if strings.HasPrefix(expr, "label_values(") {
			continue // Grafana's own
		}
		rules = append(rules, rule{"check:question" + strings.Repeat("x", i), fill.Replace(expr)})
	}
	b, err := yaml.Marshal(map[string]any{"groups": []map[string]any{{"name": "dashboard", "rules": rules}}})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(file, b, 0o600); err != nil {
		t.Fatal(err)
	}
	if output, ok := doctest.Promtool(t, nil, "check", "rules", "--lint=none", file); !ok {
		t.Error(output)
	}
}
