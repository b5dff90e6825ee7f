package main

import (
	"bytes"
	"fmt"
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
}

func columns(titles ...string) []column {
	cols := make([]column, len(titles))
	for i, title := range titles {
		cols[i].title = title
	}
	return cols
}

// table writes rows under their titles, two spaces between columns. On a
// terminal the columns that may yield are trimmed to fit; a pipe gets all.
func (p *page) table(cols []column, rows [][]string) {
	t := p.grid(false)
	header := make(table.Row, len(cols))
	configs := make([]table.ColumnConfig, len(cols))
	yield := p.yield(cols, rows)
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

// yield is the width that is left for a column that may yield, or 0 when
// all fit. They share what there is evenly.
func (p *page) yield(cols []column, rows [][]string) int {
	if p.width == 0 {
		return 0
	}
	fixed, natural, yielding := 0, 0, 0
	for i, col := range cols {
		width := len(col.title)
		for _, row := range rows {
			width = max(width, textWidth(row[i]))
		}
		if col.yield {
			natural += width
			yielding++
		} else {
			fixed += width
		}
	}
	room := p.width - fixed - 2*len(cols)
	if yielding == 0 || natural <= room {
		return 0
	}
	return max(room/yielding, 8)
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
