package main

import (
	"fmt"
	"github.com/ipamd/ipamd/internal/term"
	"math/big"
	"math/bits"
	"net/netip"
	"slices"
	"strings"
)

const (
	drawnWhole = 4096 // addresses of a pool that is drawn cell by cell, free ones too
	drawnParts = 64   // rows and stretches of a bigger one, then it is summed up
	group      = 16   // cells between two gaps
	cellsMost  = 128
	cellsLeast = 8
)

// A part is one row of cells, or a stretch that is told in words.
type part struct {
	stretch
	row    bool
	letter byte // of a stretch in which all addresses have the same; else 0
	folded bool // stands for more parts than are drawn
}

// draw writes the grid of area, which lies inside the field, and the legend.
// The area grows to whole rows, so that each address stands below its offset.
func (f *field) draw(p *term.Page, area stretch, width int) {
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
		words := f.words(p, f.tally(part.stretch), false)
		if part.folded {
			words = append(words, p.Warn("not drawn: --within "+zoom(part.stretch).String()))
		}
		lead := part.String() + ":"
		if one := lead + " " + strings.Join(words, ", "); term.Width(one) <= width {
			p.Line("%s", one)
			continue
		}
		p.Line("%s\n%s", term.Wrap(strings.Fields(lead), " ", "", width), term.Wrap(commas(words), " ", "  ", width))
	}
	p.Line("\n%s", term.Wrap(f.words(p, f.tally(area), true), "   ", "", width))
	f.drawOutside(p)
}

func (f *field) drawTitle(p *term.Page, area stretch, width int) {
	words := []string{fmt.Sprintf("%s  %s on %s", p.Bold(term.Word(f.pool.Name)), term.Word(f.pool.Prefix), term.Word(f.pool.Bridge))}
	if f.pool.Gateway != "" {
		words = append(words, "gateway "+term.Word(f.pool.Gateway))
	}
	if area != f.all {
		words = append(words, "only "+area.String())
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
func (f *field) layOut(wanted stretch, width int) (cells int, area stretch, parts []part) {
	size := wanted.size()
	for cells = cellsMost; ; cells /= 2 {
		if cells > 1 && size.Cmp(big.NewInt(int64(cells/2))) <= 0 {
			continue
		}
		area, _ = stretch{rowOf(wanted.from, cells).from, rowOf(wanted.to, cells).to}.clip(f.all)
		parts = f.cut(area, cells)
		if cells <= cellsLeast || labelWidth(parts)+cells+(cells-1)/group <= width {
			return cells, area, parts
		}
	}
}

// cut splits the area into rows of so many cells. A big area shows only the
// rows that hold something; the rest is stretches.
func (f *field) cut(area stretch, cells int) []part {
	if area.size().Cmp(big.NewInt(drawnWhole)) <= 0 {
		var parts []part
		for row := rowOf(area.from, cells); ; row = rowOf(row.to.Next(), cells) {
			piece, _ := row.clip(area)
			parts = append(parts, part{stretch: piece, row: true})
			if row.to.Compare(area.to) >= 0 {
				return parts
			}
		}
	}
	var parts []part
	next := area.from // the first address that is in no part yet
	add := func(s stretch, row bool) {
		letter := f.uniform(s)
		if n := len(parts); n > 0 && letter != 0 && letter == parts[n-1].letter {
			parts[n-1].to = s.to
			return
		}
		parts = append(parts, part{stretch: s, row: row && letter == 0, letter: letter})
	}
	held := f.heldIn(area)
	for len(held) > 0 {
		row, _ := rowOf(held[0], cells).clip(area)
		if next.Less(row.from) {
			add(stretch{next, row.from.Prev()}, false)
		}
		add(row, true)
		if row.to == area.to {
			return fold(parts)
		}
		next = row.to.Next()
		held = held[len(f.heldIn(row)):]
	}
	add(stretch{next, area.to}, false)
	return fold(parts)
}

// fold keeps a map from being endless: what comes after the first parts
// becomes one stretch.
func fold(parts []part) []part {
	if len(parts) <= drawnParts {
		return parts
	}
	rest := part{stretch: stretch{parts[drawnParts-1].from, parts[len(parts)-1].to}, folded: true}
	return append(parts[:drawnParts-1:drawnParts-1], rest)
}

// uniform is the letter that all addresses of s have, or 0.
func (f *field) uniform(s stretch) byte {
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
func rowOf(a netip.Addr, cells int) stretch {
	prefix, _ := a.Prefix(a.BitLen() - bits.TrailingZeros(uint(cells)))
	return whole(prefix)
}

// zoom is the block that shows the beginning of a stretch cell by cell.
func zoom(s stretch) netip.Prefix {
	prefix, _ := s.from.Prefix(s.from.BitLen() - bits.TrailingZeros(drawnWhole))
	return prefix
}

// drawRow is the row's first address and a letter for each address. Cells
// of one colour share their escape codes.
func (f *field) drawRow(p *term.Page, row part, label int) string {
	var b, run strings.Builder
	fmt.Fprintf(&b, "%-*s", label, row.from)
	sgr := ""
	flush := func() {
		b.WriteString(p.SGR(sgr, run.String()))
		run.Reset()
	}
	for i, a := 0, row.from; ; i, a = i+1, a.Next() {
		k := kindOf(f.at(a))
		if k.sgr != sgr || i > 0 && i%group == 0 {
			flush()
			sgr = k.sgr
		}
		if i > 0 && i%group == 0 {
			b.WriteByte(' ')
		}
		run.WriteByte(k.letter)
		if a == row.to {
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
			width = max(width, len(part.from.String()))
		}
	}
	return width + 2
}

// words tells a tally, with the letters when it is the legend. The legend
// names free addresses also when there are none.
func (f *field) words(p *term.Page, counts map[byte]*big.Int, legend bool) []string {
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
func (f *field) drawOutside(p *term.Page) {
	const most = 8
	for i, l := range f.outside {
		if i == most {
			p.Line("and %s more: ipamctl leases --pool %s", term.Count(uint64(len(f.outside)-most)), term.Word(f.pool.Name))
			return
		}
		p.Line("outside %s: %s %s %s", term.Word(f.pool.Prefix), term.Word(l.Address), stateText(p, l.State), term.Maybe(l.Sandbox))
	}
}
