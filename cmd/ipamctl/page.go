package main

import (
	"bytes"
	"fmt"
	"math"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
)

// A page collects an answer for a person; it is written at once, so that an
// error in the middle leaves nothing half said.
type page struct {
	bytes.Buffer
	paint
	width int // 0: as wide as it gets, for pipes
}

func (p *page) line(format string, args ...any) { fmt.Fprintf(p, format+"\n", args...) }

// heading starts a new part of the page.
func (p *page) heading(title string) {
	if p.Len() > 0 {
		p.line("")
	}
	p.line("%s", p.bold(title))
}

// A column of a table.
type column struct {
	title string
	right bool // numbers
	yield bool // gives way, trimmed, when the terminal is too narrow
	wraps bool // the last column: gives way too, and goes on in the next line
}

func columns(titles ...string) []column {
	cols := make([]column, len(titles))
	for i, title := range titles {
		cols[i].title = title
	}
	return cols
}

// wrapping is columns of which the last one wraps.
func wrapping(titles ...string) []column {
	cols := columns(titles...)
	cols[len(cols)-1].wraps = true
	return cols
}

// table writes rows under their titles, two spaces between columns. On a
// terminal the columns that may yield are trimmed to fit, and where that is not
// enough the rows are folded; a pipe gets all.
func (p *page) table(cols []column, rows [][]string) {
	if p.tooNarrow(cols, rows) {
		p.folded(cols, rows)
		return
	}
	t := p.grid(false)
	header := make(table.Row, len(cols))
	configs := make([]table.ColumnConfig, len(cols))
	yield, last := p.yield(cols, rows)
	for i, col := range cols {
		header[i] = p.dim(col.title)
		configs[i] = table.ColumnConfig{Number: i + 1}
		if col.right {
			configs[i].Align, configs[i].AlignHeader = text.AlignRight, text.AlignRight
		}
		if col.yield && yield > 0 {
			configs[i].WidthMax = yield
			configs[i].WidthMaxEnforcer = func(s string, n int) string { return text.Snip(s, n, "…") }
		}
		if col.wraps && last > 0 {
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
	p.line("%s", t.Render())
}

// fields writes name and value pairs, without those that have no value.
func (p *page) fields(pairs ...[2]string) {
	t := p.grid(true)
	for _, pair := range pairs {
		if pair[1] != "" {
			t.AppendRow(table.Row{p.dim(pair[0]), pair[1]})
		}
	}
	if t.Length() > 0 {
		p.line("%s", t.Render())
	}
}

// grid is a table without any lines in it.
func (p *page) grid(indent bool) table.Writer {
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
func (p *page) yield(cols []column, rows [][]string) (trimmed, wrapped int) {
	if p.width == 0 {
		return 0, 0
	}
	fixed, natural, last, yielding := 0, 0, 0, 0
	for i, width := range widths(cols, rows) {
		switch col := cols[i]; {
		case col.yield:
			natural += width
			yielding++
		case col.wraps:
			last = width
		default:
			fixed += width
		}
	}
	room := p.width - fixed - 2*len(cols)
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

// A list is a name and what is to say of it, which wraps between its parts.
type list struct {
	name  string
	parts []string
}

// lists writes names and their parts, without those that have none. On a
// terminal they wrap, below where they began.
func (p *page) lists(all ...list) {
	widest := 0
	for _, l := range all {
		if len(l.parts) > 0 {
			widest = max(widest, len(l.name))
		}
	}
	for _, l := range all {
		if len(l.parts) == 0 {
			continue
		}
		name := "  " + p.dim(l.name) + strings.Repeat(" ", widest-len(l.name)+2)
		indent := strings.Repeat(" ", widest+4)
		p.hang(name, indent, strings.Join(l.parts, ", "))
	}
}

// text writes a sentence, which wraps on a terminal.
func (p *page) text(indent, s string) { p.hang(indent, indent, s) }

// hang writes a sentence behind lead; on a terminal it goes on behind indent,
// which is as wide.
func (p *page) hang(lead, indent, s string) {
	if p.width > 0 {
		s = wrap(strings.Fields(s), " ", indent, p.width)
		s = strings.TrimPrefix(s, indent)
	}
	p.line("%s%s", lead, s)
}

// pieces writes some words with gap between them, which stay whole when the
// line wraps; nothing when there are none.
func (p *page) pieces(indent string, words []string, gap string) {
	width := p.width
	if width == 0 {
		width = math.MaxInt
	}
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
	p.line("%s", wrap(whole, gap[len(lead):], indent, width))
}

// wrap joins words with gap, breaking lines at width, each after indent.
func wrap(words []string, gap, indent string, width int) string {
	var b strings.Builder
	line := 0
	for _, w := range words {
		n := textWidth(w)
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

// textWidth is the columns that a text takes, colour apart.
func textWidth(s string) int { return text.StringWidthWithoutEscSequences(s) }
