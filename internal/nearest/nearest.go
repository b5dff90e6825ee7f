// Package nearest suggests which known name was meant by an unknown one.
package nearest

// To returns the known name that takes the fewest edits, if they are few
// enough for a slip: two, or half of the name.
func To(name string, known []string) (string, bool) {
	best, least := "", -1
	for _, k := range known {
		if n := edits(name, k); least < 0 || n < least {
			best, least = k, n
		}
	}
	return best, least >= 0 && least <= max(2, len(best)/2)
}

// edits counts the bytes to insert, drop or change (Levenshtein).
func edits(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		corner := row[0]
		row[0]++
		for j := range len(b) {
			change := corner
			if a[i] != b[j] {
				change++
			}
			corner = row[j+1]
			row[j+1] = min(change, corner+1, row[j]+1)
		}
	}
	return row[len(b)]
}
