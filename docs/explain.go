package docs

import (
	"regexp"
	"strings"
)

// An Explanation is what the page for operators says of one kind of finding or of one alert.
type Explanation struct {
	Kind string `json:"kind"`
	Text string `json:"text"` // Markdown
}

// Explanations reads them. A section begins with a heading of the third rank that has an anchor,
// and ends with the next heading of that rank or above.
func Explanations() (all []Explanation) {
	begins := regexp.MustCompile(`^### <a id="(?:finding|alert)-[^"]+"></a>(.+)$`)
	ends := regexp.MustCompile(`^#{1,3} `)
	open := false
	for line := range strings.Lines(operations) {
		line = strings.TrimRight(line, "\n")
		switch m := begins.FindStringSubmatch(line); {
		case m != nil:
			all, open = append(all, Explanation{Kind: m[1]}), true
		case ends.MatchString(line):
			open = false
		case open:
			all[len(all)-1].Text += line + "\n"
		}
	}
	for i := range all {
		all[i].Text = strings.TrimSpace(all[i].Text) + "\n"
	}
	return all
}
