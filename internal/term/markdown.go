package term

import (
	"regexp"
	"strings"
)

// Markdown writes a section of our own documents: examples as they are, rows of tables
// as paragraphs, and links as the words that they are on.
func (p *Page) Markdown(section string) {
	var said []string
	indent := ""
	flush := func() {
		if len(said) > 0 {
			p.Hang(strings.TrimSuffix(indent, "  ")+map[bool]string{true: "- "}[indent != ""], indent, p.unmarked(strings.Join(said, " ")))
		}
		said, indent = nil, ""
	}
	header := false
	for line := range strings.Lines(section) {
		line = strings.TrimRight(line, "\n")
		item, isItem := strings.CutPrefix(line, "- ")
		cells, isRow := strings.CutPrefix(line, "| ")
		switch {
		case line == "":
			flush()
			p.Line("")
		case strings.HasPrefix(line, "|---"), isRow && !header:
			header = true
		case isRow:
			name, rest, _ := strings.Cut(strings.TrimSuffix(cells, " |"), " | ")
			p.Hang("", "  ", p.unmarked(name+": "+rest))
		case strings.HasPrefix(line, "    "):
			flush()
			p.Line("%s", line)
		case isItem:
			flush()
			said, indent = []string{item}, "  "
		case strings.HasPrefix(line, "#"):
			flush()
			p.Line("%s", p.Bold(p.unmarked(strings.TrimSpace(strings.TrimLeft(line, "#")))))
		default:
			said = append(said, strings.TrimSpace(line))
		}
		header = header && (isRow || strings.HasPrefix(line, "|---"))
	}
	flush()
}

var (
	anchored = regexp.MustCompile(`<a id="[^"]*"></a>`)
	linked   = regexp.MustCompile(`\[([^]]+)\]\([^)]+\)`)
	strong   = regexp.MustCompile(`\*\*([^*]+)\*\*`)
)

// unmarked is a paragraph without its marks.
func (p *Page) unmarked(text string) string {
	text = anchored.ReplaceAllString(text, "")
	text = linked.ReplaceAllString(text, "$1")
	return strong.ReplaceAllStringFunc(text, func(s string) string { return p.Bold(strings.Trim(s, "*")) })
}
