package term

import (
	"bytes"
	"cmp"
	"fmt"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
)

// A Page collects an answer for a person; it is written at once, so that an
// error in the middle leaves nothing half said.
type Page struct {
	bytes.Buffer
	Paint
	Width int // 0: as wide as it gets, for pipes
}

// proseWidth is how wide sentences are where a page has no width. Tables stay as wide as
// they are there, so that a line is a row.
const proseWidth = 80

// Line writes a formatted line as it is, however wide.
func (p *Page) Line(format string, args ...any) { fmt.Fprintf(p, format+"\n", args...) }

// Heading starts a new part of the page.
func (p *Page) Heading(title string) {
	if p.Len() > 0 {
		p.Line("")
	}
	p.Line("%s", p.Bold(title))
}

// A Column of a table.
type Column struct {
	Title string
	Right bool // numbers
	Yield bool // gives way, trimmed, when the terminal is too narrow
	Wraps bool // the last column: gives way too, and goes on in the next line
}

// Columns makes columns that neither give way nor wrap.
func Columns(titles ...string) []Column {
	cols := make([]Column, len(titles))
	for i, title := range titles {
		cols[i].Title = title
	}
	return cols
}

// Wrapping is columns of which the last one wraps.
func Wrapping(titles ...string) []Column {
	cols := Columns(titles...)
	cols[len(cols)-1].Wraps = true
	return cols
}

// Table writes rows under their titles, two spaces between columns. On a
// terminal the columns that may yield are trimmed to fit, and where that is not
// enough the rows are folded; a pipe gets all.
func (p *Page) Table(cols []Column, rows [][]string) {
	if p.tooNarrow(cols, rows) {
		p.folded(cols, rows)
		return
	}
	t := p.grid(false)
	header := make(table.Row, len(cols))
	configs := make([]table.ColumnConfig, len(cols))
	yield, last := p.yield(cols, rows)
	for i, col := range cols {
		header[i] = p.Dim(col.Title)
		configs[i] = table.ColumnConfig{Number: i + 1}
		if col.Right {
			configs[i].Align, configs[i].AlignHeader = text.AlignRight, text.AlignRight
		}
		if col.Yield && yield > 0 {
			configs[i].WidthMax = yield
			configs[i].WidthMaxEnforcer = func(s string, n int) string { return text.Snip(s, n, "…") }
		}
		if col.Wraps && last > 0 {
			configs[i].WidthMax, configs[i].WidthMaxEnforcer = last, text.WrapSoft
		}
	}
	t.SetColumnConfigs(configs)
	t.AppendHeader(header)
	for _, row := range rows {
		cells := make(table.Row, len(row))
		for i, cell := range row {
			cells[i] = cell
		}
		t.AppendRow(cells)
	}
	p.Line("%s", t.Render())
}

// Fields writes name and value pairs, without those that have no value.
func (p *Page) Fields(pairs ...[2]string) {
	t := p.grid(true)
	for _, pair := range pairs {
		if pair[1] != "" {
			t.AppendRow(table.Row{p.Dim(pair[0]), pair[1]})
		}
	}
	if t.Length() > 0 {
		p.Line("%s", t.Render())
	}
}

// grid is a table without any lines in it.
func (p *Page) grid(indent bool) table.Writer {
	t := table.NewWriter()
	style := table.StyleDefault
	style.Options = table.OptionsNoBordersAndSeparators
	style.Format = table.FormatOptions{}
	style.Box.PaddingLeft, style.Box.PaddingRight = "", "  "
	if indent {
		style.Box.PaddingLeft, style.Box.PaddingRight = "  ", ""
	}
	t.SetStyle(style)
	t.SuppressTrailingSpaces()
	return t
}

// yield is the width that is left for each column that may be trimmed, and
// for the one that wraps; 0 when all fit. They share what there is evenly, and
// what one of them does not need is the other's.
func (p *Page) yield(cols []Column, rows [][]string) (trimmed, wrapped int) {
	if p.Width == 0 {
		return 0, 0
	}
	fixed, natural, last, yielding := 0, 0, 0, 0
	for i, width := range widths(cols, rows) {
		switch col := cols[i]; {
		case col.Yield:
			natural += width
			yielding++
		case col.Wraps:
			last = width
		default:
			fixed += width
		}
	}
	room := p.Width - fixed - 2*len(cols)
	if natural+last <= room {
		return 0, 0
	}
	if yielding == 0 {
		return 0, max(room, yieldLeast)
	}
	if last == 0 {
		return max(room/yielding, yieldLeast), 0
	}
	each := max(room/(yielding+1), yieldLeast)
	if natural <= each*yielding {
		return 0, max(room-natural, yieldLeast)
	}
	return each, max(room-each*yielding, yieldLeast)
}

// yieldLeast is what is left of a column before a table folds.
const yieldLeast = 8

// A List is a name and what is to say of it, which wraps between its parts.
type List struct {
	Name  string
	Parts []string
}

// Lists writes names and their parts, without those that have none. They wrap below where
// they began.
func (p *Page) Lists(all ...List) {
	widest := 0
	for _, l := range all {
		if len(l.Parts) > 0 {
			widest = max(widest, len(l.Name))
		}
	}
	for _, l := range all {
		if len(l.Parts) == 0 {
			continue
		}
		name := "  " + p.Dim(l.Name) + strings.Repeat(" ", widest-len(l.Name)+2)
		indent := strings.Repeat(" ", widest+4)
		p.Hang(name, indent, strings.Join(l.Parts, ", "))
	}
}

// Text writes a sentence, which wraps.
func (p *Page) Text(indent, s string) { p.Hang(indent, indent, s) }

// Hang writes a sentence behind lead; it goes on behind indent, which is as wide.
func (p *Page) Hang(lead, indent, s string) {
	s = Wrap(strings.Fields(s), " ", indent, cmp.Or(p.Width, proseWidth))
	p.Line("%s%s", lead, strings.TrimPrefix(s, indent))
}

// Pieces writes some words with gap between them, which stay whole when the
// Line wraps; nothing when there are none.
func (p *Page) Pieces(indent string, words []string, gap string) {
	if len(words) == 0 {
		return
	}
	lead := strings.TrimRight(gap, " ") // stays at the end of the line
	whole := make([]string, len(words))
	for i, w := range words {
		whole[i] = w
		if i < len(words)-1 {
			whole[i] += lead
		}
	}
	p.Line("%s", Wrap(whole, gap[len(lead):], indent, cmp.Or(p.Width, proseWidth)))
}

// Wrap joins words with gap, breaking lines at width, each after indent.
func Wrap(words []string, gap, indent string, width int) string {
	var b strings.Builder
	line := 0
	for _, w := range words {
		n := Width(w)
		switch {
		case line == 0:
			b.WriteString(indent)
			line = len(indent)
		case line+len(gap)+n > width:
			b.WriteString("\n" + indent)
			line = len(indent)
		default:
			b.WriteString(gap)
			line += len(gap)
		}
		b.WriteString(w)
		line += n
	}
	return b.String()
}

// Width is the columns that a text takes, colour apart.
func Width(s string) int { return text.StringWidthWithoutEscSequences(s) }

// More says how many of a list were not drawn, and which verb draws them.
func (p *Page) More(n int, verb string) {
	if n > 0 {
		p.Text("", p.Dim(fmt.Sprintf("and %s more: %s", Count(uint64(n)), verb)))
	}
}
