package layout

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// promises is the document that says which test holds what.
const promises = "docs/PROMISES.md"

// scenarios has every one that has a row, in the rows' order. A row says by its
// name that something is held, so none may go unnoticed.
var scenarios = []string{"L1", "L2", "L3", "L4", "L5", "L6", "L7", "L8", "L9", "L10", "L11", "L12", "L13", "L15", "L14", "L16", "L17", "L18",
	"C1", "C2", "C3", "C4", "C5", "C6", "C7", "C8", "C9", "C10", "C11", "C12",
	"W1", "W2", "W3", "W4", "W5", "W6", "W9", "W7", "W8", "W10",
	"R1", "R2", "R3", "R4", "R5", "R6", "R7", "R8", "R9", "R10", "R11",
	"scenario P1", "scenario P2", "scenario P3", "scenario P4", "scenario P5", "scenario P6", "scenario P7", "scenario P8", "scenario P9", "T1", "T2", "T3", "T4", "T5", "T6", "T7", "T8", "T9", "T10", "T11", "D1", "D2", "D3", "D4", "D5", "D6", "S1", "S2", "S3", "E1", "E2", "E3", "E4", "E5", "E6", "E7", "E8", "Z1", "Z2", "Z3", "Z4", "Z5", "Z6", "Z7", "Z8", "Z9", "Z10", "Z11", "Z12", "Z13", "Z14", "Z15", "Z16", "Z17", "Z18", "M1", "M2", "M4", "M3", "M5", "M6", "M7", "M8", "M9", "M10", "M11", "M12", "M13", "M14", "N1", "N2", "N3", "N7", "N4", "N5", "N6", "N8", "N9", "the incident",
	"F1", "F2", "F3", "F4", "F5", "F6", "F7", "F8", "F9", "F10", "F11", "F12", "F13", "F14", "F15", "F16",
	"F17", "F18", "F19", "F20", "F21", "F22", "F23", "F24", "F25", "F26", "F27", "F28", "F29", "F30", "F31", "F32"}

// attacks is how many are in the section of who may spoil what: G1 and up.
const attacks = 18

var (
	// number is a scenario, a promise, or several in a row: "L11-L13", "P1 to
	// P7". The scenarios of pools and identity share their letter with the
	// promises, so those say what they are: "scenario P1".
	number = regexp.MustCompile(`\b([Ss]cenario )?([DEFGLCMNWRSTPZ])([1-9]\d?)(?:(?:-| to )([DEFGLCMNWRSTPZ])([1-9]\d?))?\b`)
	// numbers are what a test's name begins with: "TestW6W9RemovalWithoutARelease".
	numbers = regexp.MustCompile(`^(?:Test|Fuzz)((?:[DEFGLCMNWRSTPZ][1-9]\d?)+)(?:$|[A-Z])`)
	single  = regexp.MustCompile(`[DEFGLCMNWRSTPZ]\d+`)
	row     = regexp.MustCompile(`(?m)^\| ((?:scenario )?[DEFLCMNWRSTPZ]\d+(?:, [DEFLCMNWRSTPZ]\d+)*|the incident) \|.*$`)
	attack  = regexp.MustCompile(`\bG\d+\b`) // in the section of who may spoil what
	promise = regexp.MustCompile(`(?m)^### (P\d)\. (.*)$`)
)

// numbered lists what a sentence of a test speaks of.
func numbered(sentence string) (all []string) {
	sentence = strings.Join(strings.Fields(sentence), " ")
	for _, m := range number.FindAllStringSubmatch(sentence, -1) {
		from, _ := strconv.Atoi(m[3])
		to := from
		if m[2] == m[4] {
			to, _ = strconv.Atoi(m[5])
		}
		for n := from; n <= to; n++ {
			name := m[2] + strconv.Itoa(n)
			if m[2] == "P" && (m[1] != "" || n > 7) { // there are seven promises
				name = "scenario " + name
			}
			all = append(all, name)
		}
	}
	return all
}

// claims are the scenarios and the promises that a test says it holds, by its
// name and by its comment.
func claims(name, comment string) []string {
	all := numbered(comment)
	if m := numbers.FindStringSubmatch(name); m != nil {
		all = append(all, numbered(strings.Join(single.FindAllString(m[1], -1), " "))...)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// parts is the text of the document by promise, by scenario and by attack. What stands
// before the first promise is about each of them.
func parts(body string) map[string]string {
	found := make(map[string]string)
	for _, m := range row.FindAllStringSubmatch(body, -1) {
		for _, name := range strings.Split(m[1], ", ") {
			found[name] = m[0]
		}
	}
	_, spoil, _ := strings.Cut(body, "\n## Who may spoil what\n")
	spoil, _, _ = strings.Cut(spoil, "\n## ")
	for _, piece := range strings.Split(strings.ReplaceAll(spoil, "\n| ", "\n\n| "), "\n\n") {
		for _, name := range attack.FindAllString(piece, -1) {
			found[name] += piece
		}
	}
	_, body, _ = strings.Cut(body, "\n## The promises\n")
	body, _, _ = strings.Cut(body, "\n## ")
	ofAll, _, _ := strings.Cut(body, "\n### ")
	for _, section := range strings.Split(body, "\n### ")[1:] {
		name, _, _ := strings.Cut(section, ".")
		found[name] = ofAll + section
	}
	return found
}

// unheld says what the parts of the document do not have of a test's claims.
func unheld(in map[string]string, test, comment string) (wrong []string) {
	for _, claim := range claims(test[strings.LastIndex(test, "/")+1:], comment) {
		switch text, there := in[claim]; {
		case !there:
			wrong = append(wrong, promises+" has no row for "+claim+", of which "+test+" speaks")
		case !strings.Contains(text, "`"+test+"`"):
			wrong = append(wrong, promises+" does not name "+test+" under "+claim)
		}
	}
	return wrong
}

// comments has the comment of each test, by folder and name.
func comments(t *testing.T) map[string]string {
	t.Helper()
	all := make(map[string]string)
	for _, dir := range packages(t) {
		files, err := filepath.Glob(filepath.Join(root, dir, "*_test.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments|parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range f.Decls {
				if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && function.MatchString("func "+fn.Name.Name+"(") {
					all[dir+"/"+fn.Name.Name] = fn.Doc.Text()
				}
			}
		}
	}
	return all
}

// Every test that speaks of a scenario, or of a promise, is named where that
// stands: one that no page names may go, or turn green for nothing,
// unnoticed.
func TestScenariosHaveTheirTests(t *testing.T) {
	in, all, found := parts(text(t, promises)), comments(t), 0
	for _, test := range slices.Sorted(maps.Keys(all)) {
		found += len(claims(test[strings.LastIndex(test, "/")+1:], all[test]))
		for _, wrong := range unheld(in, test, all[test]) {
			t.Error(wrong)
		}
	}
	if found < 150 {
		t.Errorf("tests speak of scenarios %d times only: are they still found?", found)
	}
}

// TestUnheldIsFound spoils what a test says of itself, or where it is named.
func TestUnheldIsFound(t *testing.T) {
	const body = "# Promises\n\n## The promises\n\n`storm/TestAll` holds them.\n\n### P1. One.\n\n`a/TestOne`\n\n### P2. Two.\n\n`a/TestTwo`\n\n" +
		"## The scenarios\n\n| L1 | what | `a/TestL1It` |\n| L2, L3 | what | `a/TestL2L3Both`, `a/TestMore` |\n| scenario P1 | what | `a/TestPool` |\n| T11 | what | `a/TestWho` |\n\n" +
		"## Who may spoil what\n\n| it cannot | held by |\n|---|---|\n| one (G1) | `a/TestG1It` |\n| two (G2, G3) | `a/TestG2G3Both` |\n\nIn words\n(G4, `a/TestSpoilt`).\n\n## More\n"
	for name, c := range map[string]struct {
		test, comment string
		wrong         int
	}{
		"nothing":                          {"a/TestOther", "IPv4, eth0, L2x, TP1, P1x.", 0},
		"by its name":                      {"a/TestL1It", "", 0},
		"by its name, elsewhere":           {"b/TestL1It", "", 1},
		"by its name, without a row":       {"a/TestT3It", "", 1},
		"a longer number":                  {"a/TestL11", "", 1},
		"two by its name":                  {"a/TestL2L3Both", "", 0},
		"two by its name, one elsewhere":   {"a/TestL1L2Both", "", 2},
		"a fuzzer":                         {"a/FuzzL1", "", 1},
		"no number in the name":            {"a/TestL1x", "", 0},
		"by its comment":                   {"a/TestMore", "L2: it is.", 0},
		"by its comment, in another row":   {"a/TestMore", "It is (L1).", 1},
		"by its comment, without a row":    {"a/TestMore", "T10 on the way.", 1},
		"a range":                          {"a/TestMore", "L2-L3: both.", 0},
		"a range that is wider":            {"a/TestMore", "L1-L4: all.", 2},
		"a promise":                        {"a/TestOne", "P1: it is.", 0},
		"another promise":                  {"a/TestOne", "P2: it is.", 1},
		"promises that one test holds all": {"storm/TestAll", "P1 to P2 at once.", 0},
		"a scenario with a promise's name": {"a/TestPool", "It is scenario P1.", 0},
		"said on two lines":                {"a/TestPool", "It is scenario\nP1.", 0},
		"the promise is not meant":         {"a/TestOne", "Scenario: it is scenario P1.", 1},
		"nor the scenario":                 {"a/TestPool", "P1: it is.", 1},
		"no promise has the number":        {"a/TestPool", "P8: it is.", 1},
		"and by its name":                  {"a/TestT11Who", "", 1},
		"an attack":                        {"a/TestG1It", "", 0},
		"two attacks":                      {"a/TestG2G3Both", "", 0},
		"an attack in another row":         {"a/TestG1It", "G2: it is.", 1},
		"an attack in words":               {"a/TestSpoilt", "G4: it is.", 0},
		"an attack that is nowhere":        {"a/TestG5It", "", 1},
	} {
		t.Run(name, func(t *testing.T) {
			if wrong := unheld(parts(body), c.test, c.comment); len(wrong) != c.wrong {
				t.Errorf("found %q, want %d", wrong, c.wrong)
			}
		})
	}
}

// Every promise is in the README word for word, and has its tests; every
// scenario has its row.
func TestPromisesAreKept(t *testing.T) {
	readme := strings.Join(strings.Fields(text(t, "README.md")), " ")
	body := text(t, promises)
	in, found := parts(body), promise.FindAllStringSubmatch(body, -1)
	if len(found) != 7 {
		t.Fatalf("%d promises, want 7", len(found))
	}
	for _, m := range found {
		name := m[1]
		if !strings.Contains(readme, "**"+name+"** "+m[2]) {
			t.Errorf("README.md has not this %s: %s", name, m[2])
		}
		if _, own, _ := strings.Cut(in[name], m[2]); !strings.Contains(own, "/Test") || !strings.Contains(own, "Seen red:") {
			t.Errorf("%s has no test, or none that was seen red", name)
		}
	}
	var got []string
	for _, m := range row.FindAllStringSubmatch(body, -1) {
		got = append(got, strings.Split(m[1], ", ")...)
	}
	if !slices.Equal(got, scenarios) {
		t.Errorf("scenarios %v, want %v", got, scenarios)
	}
	for n := 1; n <= attacks; n++ {
		if name := "G" + strconv.Itoa(n); !strings.Contains(in[name], "/Test") {
			t.Errorf("%s has no test of the attack %s", promises, name)
		}
	}
}
