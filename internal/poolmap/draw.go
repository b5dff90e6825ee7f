package poolmap

import (
	"fmt"
	"math/big"
	"math/bits"
	"net/netip"
	"slices"
	"strings"

	"github.com/ipamd/ipamd/internal/ranges"
	"github.com/ipamd/ipamd/internal/term"
)

const (
	drawnWhole = 4096 // addresses of a pool that is drawn cell by cell, free ones too
	drawnParts = 64   // rows and ranges of a bigger one, then it is summed up
	group      = 16   // cells between two gaps
	cellsMost  = 128
	cellsLeast = 8
)

// A part is one row of cells, or a range that is summed up in words.
type part struct {
	ranges.Range
	row    bool
	letter byte // of a range in which all addresses have the same; else 0
	folded bool // stands for more parts than are drawn
}

// Draw writes the grid of area, which lies inside the map, and the legend.
// The area grows to whole rows, so that each address stands below its offset.
func (f *Map) Draw(p *term.Page, area ranges.Range, width int) {
	cells, area, parts := f.layOut(area, width)
	f.drawTitle(p, area, width)
	label := labelWidth(parts)
	if cells > group && parts[0].row {
		p.Line("%s", p.Dim(ruler(label, cells)))
	}
	for _, part := range parts {
		if part.row {
			p.Line("%s", f.drawRow(p, part, label))
			continue
		}
		words := f.words(p, f.tally(part.Range), false)
		if part.folded {
			words = append(words, p.Warn("not drawn: --within "+zoom(part.Range).String()))
		}
		lead := spaced(part.Range) + ":"
		if one := lead + " " + strings.Join(words, ", "); term.Width(one) <= width {
			p.Line("%s", one)
			continue
		}
		p.Line("%s\n%s", term.Wrap(strings.Fields(lead), " ", "", width), term.Wrap(commas(words), " ", "  ", width))
	}
	p.Line("\n%s", term.Wrap(f.words(p, f.tally(area), true), "   ", "", width))
	f.drawOutside(p)
}

func (f *Map) drawTitle(p *term.Page, area ranges.Range, width int) {
	words := []string{fmt.Sprintf("%s  %s on %s", p.Bold(term.Word(f.pool.Name)), term.Word(f.pool.Prefix), term.Word(f.pool.Bridge))}
	if f.pool.Gateway != "" {
		words = append(words, "gateway "+term.Word(f.pool.Gateway))
	}
	if area != f.All {
		words = append(words, "only "+spaced(area))
	}
	p.Line("%s", strings.TrimSpace(term.Wrap(commas(words), " ", "  ", width)))
}

// commas puts a comma behind each word but the last.
func commas(words []string) []string {
	out := slices.Clone(words)
	for i := range len(out) - 1 {
		out[i] += ","
	}
	return out
}

// layOut chooses the widest rows that fit, and what the area is cut into.
func (f *Map) layOut(wanted ranges.Range, width int) (cells int, area ranges.Range, parts []part) {
	size := wanted.Size()
	for cells = cellsMost; ; cells /= 2 {
		if cells > 1 && size.Cmp(big.NewInt(int64(cells/2))) <= 0 {
			continue
		}
		area, _ = ranges.Between(rowOf(wanted.From, cells).From, rowOf(wanted.To, cells).To).Clip(f.All)
		parts = f.cut(area, cells)
		if cells <= cellsLeast || labelWidth(parts)+cells+(cells-1)/group <= width {
			return cells, area, parts
		}
	}
}

// cut splits the area into rows of so many cells. A big area shows only the
// rows that hold something; the rest is ranges.
func (f *Map) cut(area ranges.Range, cells int) []part {
	if area.Size().Cmp(big.NewInt(drawnWhole)) <= 0 {
		var parts []part
		for row := rowOf(area.From, cells); ; row = rowOf(row.To.Next(), cells) {
			piece, _ := row.Clip(area)
			parts = append(parts, part{Range: piece, row: true})
			if row.To.Compare(area.To) >= 0 {
				return parts
			}
		}
	}
	var parts []part
	next := area.From // the first address that is in no part yet
	add := func(s ranges.Range, row bool) {
		letter := f.uniform(s)
		if n := len(parts); n > 0 && letter != 0 && letter == parts[n-1].letter {
			parts[n-1].To = s.To
			return
		}
		parts = append(parts, part{Range: s, row: row && letter == 0, letter: letter})
	}
	held := f.heldIn(area)
	for len(held) > 0 {
		row, _ := rowOf(held[0], cells).Clip(area)
		if next.Less(row.From) {
			add(ranges.Between(next, row.From.Prev()), false)
		}
		add(row, true)
		if row.To == area.To {
			return fold(parts)
		}
		next = row.To.Next()
		held = held[len(f.heldIn(row)):]
	}
	add(ranges.Between(next, area.To), false)
	return fold(parts)
}

// fold keeps a map from being endless: what comes after the first parts
// becomes one range.
func fold(parts []part) []part {
	if len(parts) <= drawnParts {
		return parts
	}
	rest := part{Range: ranges.Between(parts[drawnParts-1].From, parts[len(parts)-1].To), folded: true}
	return append(parts[:drawnParts-1:drawnParts-1], rest)
}

// uniform is the letter that all addresses of s have, or 0.
func (f *Map) uniform(s ranges.Range) byte {
	var only byte
	for letter, n := range f.tally(s) {
		if n.Sign() == 0 {
			continue
		}
		if only != 0 {
			return 0
		}
		only = letter
	}
	return only
}

// rowOf is the row that an address belongs to.
func rowOf(a netip.Addr, cells int) ranges.Range {
	prefix, _ := a.Prefix(a.BitLen() - bits.TrailingZeros(uint(cells)))
	return ranges.Of(prefix)
}

// spaced writes a range for a person, with room around its dash.
func spaced(r ranges.Range) string { return r.From.String() + " - " + r.To.String() }

// zoom is the block that shows the beginning of a range cell by cell.
func zoom(s ranges.Range) netip.Prefix {
	prefix, _ := s.From.Prefix(s.From.BitLen() - bits.TrailingZeros(drawnWhole))
	return prefix
}

// drawRow is the row's first address and a letter for each address. Cells
// of one colour share their escape codes.
func (f *Map) drawRow(p *term.Page, row part, label int) string {
	var b, run strings.Builder
	fmt.Fprintf(&b, "%-*s", label, row.From)
	sgr := ""
	flush := func() {
		b.WriteString(p.SGR(sgr, run.String()))
		run.Reset()
	}
	for i, a := 0, row.From; ; i, a = i+1, a.Next() {
		k := kindOf(f.at(a))
		if k.sgr != sgr || i > 0 && i%group == 0 {
			flush()
			sgr = k.sgr
		}
		if i > 0 && i%group == 0 {
			b.WriteByte(' ')
		}
		run.WriteByte(k.letter)
		if a == row.To {
			flush()
			return b.String()
		}
	}
}

// ruler numbers the groups of a row: an address is its row's plus that.
func ruler(label, cells int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%*s", label, "")
	for at := 0; at < cells; at += group {
		fmt.Fprintf(&b, "%-*s", group+1, fmt.Sprintf("+%d", at))
	}
	return strings.TrimRight(b.String(), " ")
}

func labelWidth(parts []part) int {
	width := 0
	for _, part := range parts {
		if part.row {
			width = max(width, len(part.From.String()))
		}
	}
	return width + 2
}

// words spells a tally, with the letters when it is the legend. The legend
// names free addresses also when there are none.
func (f *Map) words(p *term.Page, counts map[byte]*big.Int, legend bool) []string {
	var out []string
	for _, k := range kinds() {
		n := counts[k.letter]
		if (n == nil || n.Sign() == 0) && (!legend || k.letter != free) {
			continue
		}
		if legend {
			out = append(out, fmt.Sprintf("%s %s %s", p.SGR(k.sgr, string(k.letter)), k.word, bigCount(n)))
		} else {
			out = append(out, bigCount(n)+" "+p.SGR(k.sgr, k.word))
		}
	}
	return out
}

func bigCount(n *big.Int) string {
	if n == nil {
		return "0"
	}
	if n.IsUint64() {
		return term.Count(n.Uint64())
	}
	f, _ := new(big.Float).SetInt(n).Float64()
	return term.Magnitude(f)
}

// drawOutside names leases that the pool has but its prefix does not cover:
// they stay valid and are never given again.
func (f *Map) drawOutside(p *term.Page) {
	const most = 8
	for i, l := range f.outside {
		if i == most {
			p.Line("and %s more: ipamctl leases --pool %s", term.Count(uint64(len(f.outside)-most)), term.Word(f.pool.Name))
			return
		}
		p.Line("outside %s: %s %s %s", term.Word(f.pool.Prefix), term.Word(l.Address), StateText(p, l.State), term.Maybe(l.Sandbox))
	}
}
