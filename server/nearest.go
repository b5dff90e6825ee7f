package server

import "slices"

// meant suggests which of the known names was meant, as the end of a
// sentence.
func meant(name string, known []string) string {
	if len(known) == 0 {
		return "; this verb takes none"
	}
	if len(name) > 64 {
		name = name[:64]
	}
	best := slices.MinFunc(known, func(a, b string) int { return edits(name, a) - edits(name, b) })
	if edits(name, best) > max(2, len(best)/2) {
		return ""
	}
	return "; did you mean " + best + "?"
}

// edits counts the bytes to insert, drop or change (Levenshtein).
func edits(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
