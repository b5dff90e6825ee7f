package manual

import (
	"path/filepath"
	"strings"
)

// Settings writes the page of a configuration file, in section 5, from the
// file itself: a TOML document that begins with what is to be said of the
// whole, and in which the comment over each table and each key gives its
// meaning. Every value must be on one line with its key.
func (v Volume) Settings(dir, name, about, path, document string) error {
	return write(filepath.Join(dir, "man", "man5", name+".5"), v.settings(name, about, path, document))
}

func (v Volume) settings(name, about, path, document string) string {
	p := v.page(name, "5", about)
	p.section("SYNOPSIS")
	p.request("B", path)
	p.section("DESCRIPTION")
	var said []string
	say := func() {
		for _, line := range said {
			p.line(escape(line))
		}
		said = nil
	}
	for line := range strings.Lines(document) {
		line = strings.TrimSpace(line)
		comment, isComment := strings.CutPrefix(line, "#")
		switch {
		case isComment:
			said = append(said, strings.TrimSpace(comment))
		case line == "": // ends what is said of the whole, and a table
			say()
		case strings.HasPrefix(line, "["):
			p.request("SS", line)
			say()
		default:
			p.line(".TP")
			p.request("B", line)
			say()
		}
	}
	say()
	return p.String()
}
