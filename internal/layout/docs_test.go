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
var documents = []string{"README.md", "CHANGELOG.md", "CONTRIBUTING.md", "docs/ARCHITECTURE.md", "docs/PROMISES.md", "docs/API.md", "docs/METRICS.md", "docs/OPERATIONS.md", "docs/BENCHMARKS.md"}

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

// Every promise is in the README word for word, and has its tests.
func TestPromisesAreKept(t *testing.T) {
	readme := strings.Join(strings.Fields(text(t, "README.md")), " ")
	heading := regexp.MustCompile(`(?m)^### (P\d)\. (.*)$`)
	body := text(t, "docs/PROMISES.md")
	found := heading.FindAllStringSubmatchIndex(body, -1)
	if len(found) != 7 {
		t.Fatalf("%d promises, want 7", len(found))
	}
	for i, at := range found {
		name, promise := body[at[2]:at[3]], body[at[4]:at[5]]
		if !strings.Contains(readme, "**"+name+"** "+promise) {
			t.Errorf("README.md has not this %s: %s", name, promise)
		}
		end := len(body)
		if i+1 < len(found) {
			end = found[i+1][0]
		}
		section := body[at[0]:end]
		if !strings.Contains(section, "/Test") || !strings.Contains(section, "Seen red:") {
			t.Errorf("%s has no test, or none that was seen red", name)
		}
	}
	rows := regexp.MustCompile(`(?m)^\| ([LCWRS]\d+(?:, [LCWRS]\d+)*|the incident) \|`)
	var got []string
	for _, m := range rows.FindAllStringSubmatch(body, -1) {
		got = append(got, strings.Split(m[1], ", ")...)
	}
	want := []string{"L1", "L2", "L3", "L4", "L5", "L6", "L7", "L8", "L9", "L10", "L11", "L12", "L13", "L15", "L14", "L16", "L17", "L18",
		"C1", "C2", "C3", "C4", "C5", "C6", "C7", "C8", "C9", "C10", "C11", "C12",
		"W1", "W2", "W3", "W4", "W5", "W6", "W9", "W7", "W8", "W10",
		"R1", "R2", "R3", "R4", "R5", "R6", "R7", "R8", "R9", "R10", "R11", "S1", "S2", "S3", "the incident"}
	if !slices.Equal(got, want) {
		t.Errorf("scenarios %v, want %v", got, want)
	}
}

// Every test that is named after a scenario is in the table of them: one that
// nobody is sent to may go, or turn green for nothing, and nobody looks.
func TestScenariosHaveTheirTests(t *testing.T) {
	numbered := regexp.MustCompile(`^Test[LCWRS]\d`)
	body, found := text(t, "docs/PROMISES.md"), 0
	for dir, names := range tests(t) {
		for _, name := range names {
			if !numbered.MatchString(name) {
				continue
			}
			found++
			if !strings.Contains(body, "`"+dir+"/"+name+"`") {
				t.Errorf("docs/PROMISES.md does not name %s/%s", dir, name)
			}
		}
	}
	if found < 100 {
		t.Errorf("only %d tests are named after a scenario: are they still found?", found)
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
