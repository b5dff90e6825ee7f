package term

import (
	"strings"
	"testing"
	"unicode"

	"pgregory.net/rapid"
)

// A name is shown as it is or quoted, and no two names look the same.
func TestWord(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		a, b := rapid.String().Draw(rt, "a"), rapid.String().Draw(rt, "b")
		if a != b && Word(a) == Word(b) {
			rt.Fatalf("%q and %q look the same", a, b)
		}
		if strings.IndexFunc(Word(a), func(r rune) bool { return !unicode.IsPrint(r) }) >= 0 {
			rt.Fatalf("%q is shown as %q", a, Word(a))
		}
	})
	for in, want := range map[string]string{
		"web-1": "web-1", "bücher/ö": "bücher/ö", "a b": "a b", "": `""`, `"x"`: `"\"x\""`, "a\nb": `"a\nb"`,
	} {
		if got := Word(in); got != want {
			t.Errorf("word(%q) = %s, want %s", in, got, want)
		}
	}
}

func TestCount(t *testing.T) {
	for n, want := range map[uint64]string{0: "0", 999: "999", 2560: "2 560", 1_000_000: "1 000 000", 1<<64 - 1: "about 1.8e19"} {
		if got := Count(n); got != want {
			t.Errorf("count(%d) = %q, want %q", n, got, want)
		}
	}
}

// A sentence wraps between words, behind its indent, and a table that cannot fit is
// folded: no cell is cut that may not be.
func TestNarrowPage(t *testing.T) {
	p := &Page{Width: 24}
	p.Hang("- ", "  ", "one two three four five six")
	p.Table(Columns("ADDRESS", "SANDBOX", "STATE"), [][]string{{"10.8.64.2", "a-long-sandbox-name", "bound"}})
	want := "- one two three four\n  five six\nADDRESS\n  SANDBOX\n  STATE\n10.8.64.2\n  a-long-sandbox-name\n  bound\n"
	if got := p.String(); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	p = &Page{Width: 24}
	cols := Columns("ADDRESS", "SANDBOX")
	cols[1].Yield = true
	p.Table(cols, [][]string{{"10.8.64.2", "a-long-sandbox-name"}})
	if got := p.String(); !strings.Contains(got, "10.8.64.2  a-long-") || !strings.Contains(got, "…") {
		t.Errorf("trimmed: %q", got)
	}
}

// Text of several lines keeps its ends and tabs, and nothing that a terminal obeys or hides.
func TestLines(t *testing.T) {
	for in, want := range map[string]string{
		"a\tb\nc\n": "a\tb\nc\n", "\x1b[2J": `\x1b[2J`, "a\rb": `a\rb`, "\u202e": `\u202e`, "bücher": "bücher", "a\x9bb": `a\x9bb`,
	} {
		var b strings.Builder
		if n, err := (Lines{&b}).Write([]byte(in)); n != len(in) || err != nil || b.String() != want {
			t.Errorf("%q is written as %q, %d %v; want %q", in, b.String(), n, err, want)
		}
	}
}
