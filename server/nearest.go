package server

import "github.com/ipamd/ipamd/internal/nearest"

// meant suggests which of the known names was meant, as the end of a
// sentence.
func meant(name string, known []string) string {
	if len(known) == 0 {
		return "; this verb takes none"
	}
	if best, ok := nearest.To(name[:min(len(name), 64)], known); ok {
		return "; did you mean " + best + "?"
	}
	return ""
}
