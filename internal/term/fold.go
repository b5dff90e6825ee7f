package term

import "strings"

// foldIndent leads the second and all further lines of a folded row.
const foldIndent = "  "

// widths is what each column of a table takes when nothing gives way.
func widths(cols []Column, rows [][]string) []int {
	out := make([]int, len(cols))
	for i, col := range cols {
		out[i] = len(col.Title)
		for _, row := range rows {
			out[i] = max(out[i], Width(row[i]))
		}
	}
	return out
}

// tooNarrow reports that the columns of a table do not fit beside each other,
// however much of them is trimmed.
func (p *Page) tooNarrow(cols []Column, rows [][]string) bool {
	if p.Width == 0 {
		return false
	}
	least := 2 * (len(cols) - 1)
	for i, width := range widths(cols, rows) {
		if cols[i].Yield || cols[i].Wraps {
			width = min(width, yieldLeast)
		}
		least += width
	}
	return least > p.Width
}

// folded writes the rows of a table that does not fit, each over as many lines
// as it takes, the titles too. The columns stay below each other and nothing is
// trimmed; one that is wider than a line, a sentence mostly, wraps in lines of its
// own.
func (p *Page) folded(cols []Column, rows [][]string) {
	wide := widths(cols, rows)
	titles := make([]string, len(cols))
	for i, col := range cols {
		titles[i] = p.Dim(col.Title)
	}
	for _, row := range append([][]string{titles}, rows...) {
		for n, group := range p.groups(wide) {
			indent := foldIndent
			if n == 0 {
				indent = ""
			}
			cells := make([]string, len(group))
			for at, i := range group {
				gap := strings.Repeat(" ", wide[i]-Width(row[i]))
				if cells[at] = row[i] + gap; cols[i].Right {
					cells[at] = gap + row[i]
				}
			}
			line := strings.TrimRight(indent+strings.Join(cells, "  "), " ")
			switch {
			case line == "":
			case Width(line) <= p.Width:
				p.Line("%s", line)
			default:
				p.Text(indent, row[group[0]])
			}
		}
	}
}

// groups says which columns share a line.
func (p *Page) groups(wide []int) [][]int {
	groups := [][]int{{0}}
	at := wide[0]
	for i := 1; i < len(wide); i++ {
		last := len(groups) - 1
		if at += 2 + wide[i]; at <= p.Width {
			groups[last] = append(groups[last], i)
			continue
		}
		groups = append(groups, []int{i})
		at = len(foldIndent) + wide[i]
	}
	return groups
}
