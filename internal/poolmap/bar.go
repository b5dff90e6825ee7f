package poolmap

import (
	"fmt"
	"strings"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/internal/term"
)

// shares divides a pool into what is in use, on its way back, quarantined, kept for
// sandboxes that are away, and available, in this order. An address that has cooled for long
// enough is available.
func shares(pool api.Pool) []term.Share {
	sum := func(states ...api.State) (n uint64) {
		for _, s := range states {
			n += uint64(max(pool.ByState[string(s)], 0))
		}
		return n
	}
	back := sum(api.Releasing, api.Cooling)
	return []term.Share{
		{N: sum(api.Reserved, api.Bound, api.Paused), SGR: "32", Glyphs: [2]string{"#", "█"}, Words: "in use"},
		{N: back - min(back, max(Available(pool), pool.Free)-pool.Free), SGR: "36", Glyphs: [2]string{"=", "▒"}, Words: "on its way back"},
		{N: sum(api.Quarantined), SGR: "1;31", Glyphs: [2]string{"!", "╳"}, Words: "quarantined"},
		{N: pool.Kept, SGR: "34", Glyphs: [2]string{"k", "k"}, Words: "kept"},
		{N: Available(pool), SGR: "2", Glyphs: [2]string{".", "·"}, Words: "available"},
	}
}

// Available is how many addresses can be given now; a daemon that does not say so
// says how many are free. A pool that drains gives none.
func Available(pool api.Pool) uint64 {
	if pool.State != "" && pool.State != api.PoolActive {
		return 0
	}
	return max(pool.Available, pool.Free)
}

const (
	barLeast = 6
	barMost  = 40
	barPiped = 24 // where the width does not matter
)

// Bars draws a line for each pool with a bar of its use, what it holds
// below, and a legend of the bars.
func Bars(p *term.Page, pools []api.Pool, unicode bool) {
	glyph := 0
	if unicode {
		glyph = 1
	}
	nameWidth, prefixWidth, leftWidth := 0, 0, 0
	for _, pool := range pools {
		nameWidth = max(nameWidth, term.Width(term.Word(pool.Name)))
		prefixWidth = max(prefixWidth, term.Width(term.Word(pool.Prefix)))
		leftWidth = max(leftWidth, term.Width(Room(p, pool)))
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
		for i, n := range term.Cells(parts, width) {
			bar.WriteString(p.SGR(parts[i].SGR, strings.Repeat(parts[i].Glyphs[glyph], n)))
			drawn[i] = drawn[i] || n > 0
		}
		var held []string
		line := fmt.Sprintf("  %s  %s  [%s] %4s", term.Pad(term.Word(pool.Name), nameWidth), term.Pad(term.Word(pool.Prefix), prefixWidth), bar.String(), Percent(pool))
		if narrow {
			held = append(held, Room(p, pool))
		} else {
			line += "  " + Room(p, pool)
		}
		p.Line("%s", line)
		held = append(held, Held(p, pool)...)
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
			legend = append(legend, p.SGR(s.SGR, s.Glyphs[glyph])+" "+s.Words)
		}
	}
	p.Pieces("  ", legend, "   ")
}

// Percent is how much of a pool cannot be given. Only nothing is 0%, and only
// all of it is 100%.
func Percent(pool api.Pool) string {
	taken := 100 * (1 - float64(Available(pool))/float64(pool.Size))
	switch {
	case pool.Size == 0:
		return "-"
	case Available(pool) >= pool.Size:
		return "0%"
	case taken < 1:
		return "<1%"
	case Available(pool) == 0:
		return "100%"
	default:
		return fmt.Sprintf("%d%%", min(int(taken+0.5), 99))
	}
}

// Room is how much of a pool is left.
func Room(p *term.Page, pool api.Pool) string {
	said := fmt.Sprintf("%s of %s left", term.Count(Available(pool)), term.Count(pool.Size))
	if Available(pool) == 0 {
		return p.Bad(said)
	}
	return said
}

// Held is how many addresses of a pool are in each state.
func Held(p *term.Page, pool api.Pool) (all []string) {
	for _, s := range States() {
		if n := pool.ByState[s]; n > 0 {
			all = append(all, term.Count(uint64(n))+" "+StateText(p, api.State(s)))
		}
	}
	if pool.Kept > 0 {
		all = append(all, term.Count(pool.Kept)+" kept")
	}
	return all
}
