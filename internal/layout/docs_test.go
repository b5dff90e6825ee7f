package layout

import (
	"bytes"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/ipamd/ipamd/api"
)

// root is the module's folder.
const root = "../.."

// documents are the ones that a reader is sent to.
var documents = []string{"README.md", "CHANGELOG.md", "CONTRIBUTING.md", "docs/ARCHITECTURE.md", "docs/PROMISES.md", "docs/API.md", "docs/METRICS.md", "docs/OPERATIONS.md", "docs/FEATURES.md", "docs/BENCHMARKS.md", "docs/CNI.md", "docs/DOCKER.md"}

func text(t *testing.T, file string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(root, file))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

var (
	quoted   = regexp.MustCompile("`([^`\n]+)`")
	link     = regexp.MustCompile(`\]\(([^)#\s]+)\)`)
	testName = regexp.MustCompile(`^((?:[a-z0-9-]+/)*)((?:Test|Fuzz|Example|Benchmark)\w*)$`)
	fileName = regexp.MustCompile(`^[\w./-]+\.(?:go|sql|toml|yaml|md|mod|sh)$`)
	function = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Example|Benchmark)\w*)\(`)
)

// tests lists the tests of each folder.
func tests(t *testing.T) map[string][]string {
	t.Helper()
	found := make(map[string][]string)
	for _, dir := range packages(t) {
		files, err := filepath.Glob(filepath.Join(root, dir, "*_test.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			b, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range function.FindAllSubmatch(b, -1) {
				found[dir] = append(found[dir], string(m[1]))
			}
		}
	}
	return found
}

// packages lists the folders of the module that have Go files.
func packages(t *testing.T) []string {
	t.Helper()
	var dirs []string
	err := filepath.WalkDir(root, func(p string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, p)
		if err != nil {
			return err
		}
		if d.IsDir() && (rel != "." && strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata" || rel == "tools") {
			return filepath.SkipDir
		}
		if dir := path.Dir(filepath.ToSlash(rel)); strings.HasSuffix(rel, ".go") && !slices.Contains(dirs, dir) {
			dirs = append(dirs, dir)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return dirs
}

// Every test, file and link that a document names is there.
func TestDocumentsNameWhatExists(t *testing.T) {
	all := tests(t)
	exists := func(dir, name string) bool {
		if dir != "" {
			return slices.Contains(all[strings.TrimSuffix(dir, "/")], name)
		}
		for _, names := range all {
			if slices.Contains(names, name) {
				return true
			}
		}
		return false
	}
	named := 0
	for _, doc := range documents {
		body := text(t, doc)
		for _, m := range quoted.FindAllStringSubmatch(body, -1) {
			name := m[1]
			if test := testName.FindStringSubmatch(name); test != nil {
				named++
				if !exists(test[1], test[2]) {
					t.Errorf("%s names the test %s, which is not there", doc, name)
				}
			} else if fileName.MatchString(name) && strings.Contains(name, "/") && !path.IsAbs(name) {
				if _, err := os.Stat(filepath.Join(root, name)); err != nil {
					t.Errorf("%s names the file %s: %v", doc, name, err)
				}
			}
		}
		for _, m := range link.FindAllStringSubmatch(body, -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			if _, err := os.Stat(filepath.Join(root, path.Dir(doc), m[1])); err != nil {
				t.Errorf("%s links to %s: %v", doc, m[1], err)
			}
		}
	}
	if named < 50 {
		t.Errorf("only %d tests are named in all documents: are they still found?", named)
	}
}

// The map has every package.
func TestArchitectureHasEveryRoom(t *testing.T) {
	body := text(t, "docs/ARCHITECTURE.md")
	for _, dir := range packages(t) {
		if !strings.Contains(body, "| `"+dir+"` |") {
			t.Errorf("docs/ARCHITECTURE.md has no row for %s", dir)
		}
	}
}

// The map's column of imports is the plan.
func TestArchitectureHasThePlan(t *testing.T) {
	_, table, _ := strings.Cut(text(t, "docs/ARCHITECTURE.md"), "| imports of ours |\n|---|---|---|\n")
	table, _, _ = strings.Cut(table, "\n\n")
	rows := strings.Split(table, "\n")
	if len(rows) < 20 {
		t.Fatalf("only %d rooms are found on the map", len(rows))
	}
	for _, row := range rows {
		cells := strings.Split(row, "|")
		name := strings.Trim(cells[1], " `")
		i := slices.IndexFunc(rooms, func(r room) bool { return r.path == name })
		if i < 0 || len(cells) != 5 {
			t.Errorf("the plan has no room %s, or its row is not whole", name)
			continue
		}
		may := "none"
		if len(rooms[i].may) > 0 {
			may = "`" + strings.Join(rooms[i].may, "`, `") + "`"
		}
		if name == "cmd/ipamd" {
			may = "every room" // in so many words: it is the one that joins them
		}
		if got := strings.TrimSpace(cells[3]); got != may {
			t.Errorf("docs/ARCHITECTURE.md says that %s imports %s; the plan says %s", name, got, may)
		}
	}
}

// The page about the socket has every route and every code.
func TestTheSocketIsDocumented(t *testing.T) {
	body := text(t, "docs/API.md")
	for _, e := range api.Endpoints() {
		if !regexp.MustCompile(`(?m)^### .*\b` + e.Method + " " + regexp.QuoteMeta(e.Path) + `(,|$)`).MatchString(body) {
			t.Errorf("docs/API.md has no heading for %s %s", e.Method, e.Path)
		}
	}
	for _, c := range api.Codes() {
		if !strings.Contains(body, "| `"+string(c)+"` |") {
			t.Errorf("docs/API.md has no row for %s", c)
		}
	}
}

// The README's integration is what client's example compiles.
func TestReadmeShowsTheExample(t *testing.T) {
	_, block, ok := strings.Cut(text(t, "README.md"), "```go\n")
	block, _, closed := strings.Cut(block, "```")
	if !ok || !closed {
		t.Fatal("README.md has no Go")
	}
	example := []byte(text(t, "client/example_test.go"))
	for line := range strings.Lines(block) {
		line = strings.TrimSpace(line)
		i := bytes.Index(example, []byte(line))
		if i < 0 {
			t.Fatalf("client/example_test.go has not, or not in this order: %s", line)
		}
		example = example[i:]
	}
}
