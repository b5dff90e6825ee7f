package term

import "strings"

// A Share is one part of a bar.
type Share struct {
	N      uint64
	SGR    string
	Glyphs [2]string // ASCII, Unicode
	Words  string    // for a legend
}

// Cells gives each share its part of a bar: in proportion, but none that is
// there less than one cell, so that a single quarantined address of a /64
// shows. They sum to width, which must not be below len(parts).
func Cells(parts []Share, width int) []int {
	total := 0.0
	for _, s := range parts {
		total += float64(s.N)
	}
	out := make([]int, len(parts))
	if total == 0 {
		return out
	}
	sum := 0
	for i, s := range parts {
		if s.N > 0 {
			out[i] = max(1, int(float64(s.N)/total*float64(width)+0.5))
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

// Unicode reports whether a terminal's locale can show more than ASCII.
// The first of the three that is set decides, as in setlocale(3).
func Unicode(getenv func(string) string) bool {
	for _, key := range []string{"LC_ALL", "LC_CTYPE", "LANG"} {
		if value := getenv(key); value != "" {
			value = strings.ToLower(value)
			return strings.Contains(value, "utf-8") || strings.Contains(value, "utf8")
		}
	}
	return false
}
