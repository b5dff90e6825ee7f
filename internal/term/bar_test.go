package term

import (
	"fmt"
	"math"
	"testing"
)

// Each part that is there has a cell at least, and together
// they are as wide as the bar.
func TestCells(t *testing.T) {
	for _, c := range []struct {
		name                     string
		use, back, quarant, free uint64
		want                     string
	}{
		{"nothing", 0, 0, 0, 0, "[0 0 0 0]"},
		{"all free", 0, 0, 0, 253, "[0 0 0 10]"},
		{"full", 253, 0, 0, 0, "[10 0 0 0]"},
		{"one of an IPv6 /64", 1, 0, 1, math.MaxUint64 - 2, "[1 0 1 8]"},
		{"one left", 252, 0, 0, 1, "[9 0 0 1]"},
		{"all halves round up", 5, 5, 5, 5, "[2 2 3 3]"},
		{"thirds", 1, 1, 0, 1, "[4 3 0 3]"},
	} {
		parts := []Share{{N: c.use}, {N: c.back}, {N: c.quarant}, {N: c.free}}
		if got := fmt.Sprint(Cells(parts, 10)); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}
