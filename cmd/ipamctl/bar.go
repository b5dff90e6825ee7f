package main

import (
	"fmt"
	"strings"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/internal/term"
)

// A share is one kind of addresses of a pool.
type share struct {
	n      uint64
	sgr    string
	glyphs [2]string // ASCII, Unicode
	words  string
}

// shares divides a pool into what is in use, on its way back, quarantined, kept for
// sandboxes that are away, and available, in this order. An address that has cooled for long
// enough is available.
func shares(pool api.Pool) []share {
	sum := func(states ...api.State) (n uint64) {
		for _, s := range states {
			n += uint64(max(pool.ByState[string(s)], 0))
		}
		return n
	}
	back := sum(api.Releasing, api.Cooling)
	return []share{
		{sum(api.Reserved, api.Bound, api.Paused), "32", [2]string{"#", "█"}, "in use"},
		{back - min(back, max(available(pool), pool.Free)-pool.Free), "36", [2]string{"=", "▒"}, "on its way back"},
		{sum(api.Quarantined), "1;31", [2]string{"!", "╳"}, "quarantined"},
		{pool.Kept, "34", [2]string{"k", "k"}, "kept"},
		{available(pool), "2", [2]string{".", "·"}, "available"},
	}
}

// available is how many addresses can be given now; a daemon that does not say so
// says how many are free. A pool that drains gives none.
func available(pool api.Pool) uint64 {
	if pool.State != "" && pool.State != api.PoolActive {
		return 0
	}
	return max(pool.Available, pool.Free)
}

// cells gives each share its part of a bar: in proportion, but none that is
// there less than one cell, so that a single quarantined address of a /64
// shows. They sum to width, which must not be below len(parts).
func cells(parts []share, width int) []int {
	total := 0.0
	for _, s := range parts {
		total += float64(s.n)
	}
	out := make([]int, len(parts))
	if total == 0 {
		return out
	}
	sum := 0
	for i, s := range parts {
		if s.n > 0 {
			out[i] = max(1, int(float64(s.n)/total*float64(width)+0.5))
		}
		sum += out[i]
	}
	for ; sum > width; sum-- { // what rounding up took comes from the widest
		out[widest(out)]--
	}
	out[widest(out)] += width - sum
	return out
}

func widest(cells []int) (at int) {
	for i, n := range cells {
		if n > cells[at] {
			at = i
		}
	}
	return at
}

const (
	barLeast = 6
	barMost  = 40
	barPiped = 24 // where the width does not matter
)

// drawBars draws a line for each pool with a bar of its use, what it holds
// below, and a legend of the bars.
func (p *page) drawBars(pools []api.Pool) {
	glyph := 0
	if p.unicode {
		glyph = 1
	}
	nameWidth, prefixWidth, leftWidth := 0, 0, 0
	for _, pool := range pools {
		nameWidth = max(nameWidth, term.Width(term.Word(pool.Name)))
		prefixWidth = max(prefixWidth, term.Width(term.Word(pool.Prefix)))
		leftWidth = max(leftWidth, term.Width(p.room(pool)))
	}
	width, narrow := barPiped, false
	if p.Width > 0 {
		left := p.Width - len("      [] 100%") - nameWidth - prefixWidth
		narrow = left-len("  ")-leftWidth < barLeast
		if !narrow {
			left -= len("  ") + leftWidth
		}
		width = min(max(left, barLeast), barMost)
	}
	drawn := make([]bool, len(shares(api.Pool{})))
	for _, pool := range pools {
		parts := shares(pool)
		var bar strings.Builder
		for i, n := range cells(parts, width) {
			bar.WriteString(p.SGR(parts[i].sgr, strings.Repeat(parts[i].glyphs[glyph], n)))
			drawn[i] = drawn[i] || n > 0
		}
		var held []string
		line := fmt.Sprintf("  %s  %s  [%s] %4s", term.Pad(term.Word(pool.Name), nameWidth), term.Pad(term.Word(pool.Prefix), prefixWidth), bar.String(), percent(pool))
		if narrow {
			held = append(held, p.room(pool))
		} else {
			line += "  " + p.room(pool)
		}
		p.Line("%s", line)
		held = append(held, p.held(pool)...)
		if state := pool.State; state != "" && state != api.PoolActive {
			held = append(held, p.Warn("the pool is "+term.Sentence(string(state))))
		}
		if pool.Outside > 0 {
			held = append(held, p.Warn(term.Plural(pool.Outside, "lease")+" outside"))
		}
		p.Pieces("    ", held, ", ")
	}
	var legend []string
	for i, s := range shares(api.Pool{}) {
		if drawn[i] {
			legend = append(legend, p.SGR(s.sgr, s.glyphs[glyph])+" "+s.words)
		}
	}
	p.Pieces("  ", legend, "   ")
}

// percent is how much of a pool cannot be given. Only nothing is 0%, and only
// all of it is 100%.
func percent(pool api.Pool) string {
	taken := 100 * (1 - float64(available(pool))/float64(pool.Size))
	switch {
	case pool.Size == 0:
		return "-"
	case available(pool) >= pool.Size:
		return "0%"
	case taken < 1:
		return "<1%"
	case available(pool) == 0:
		return "100%"
	default:
		return fmt.Sprintf("%d%%", min(int(taken+0.5), 99))
	}
}

// room is how much of a pool is left.
func (p *page) room(pool api.Pool) string {
	said := fmt.Sprintf("%s of %s left", term.Count(available(pool)), term.Count(pool.Size))
	if available(pool) == 0 {
		return p.Bad(said)
	}
	return said
}

// unicode reports whether the terminal's locale can show more than ASCII.
// The first of the three that is set decides, as in setlocale(3).
func (s streams) unicode() bool {
	for _, key := range []string{"LC_ALL", "LC_CTYPE", "LANG"} {
		if value := s.getenv(key); value != "" {
			value = strings.ToLower(value)
			return strings.Contains(value, "utf-8") || strings.Contains(value, "utf8")
		}
	}
	return false
}
