package manual

import (
	"fmt"
	"strings"
)

// A page is written line by line in the language of man(7). What is given as
// text is shown as it is.
type page struct{ strings.Builder }

func (v Volume) page(name, section, about string, aliases ...string) *page {
	p := new(page)
	// A date is read by programs, and none of them knows an escaped hyphen.
	p.line(fmt.Sprintf(`.TH "%s" %s "%s" "%s"`, escape(strings.ToUpper(name)), section, v.Date.Format("2006-01-02"), escape(v.Source)))
	p.section("NAME")
	p.line(escape(strings.Join(append([]string{name}, aliases...), ", ")) + ` \- ` + escape(about))
	return p
}

// line writes a line that is spelled in roff already.
func (p *page) line(roff string) { fmt.Fprintln(p, roff) }

func (p *page) request(name string, arguments ...string) {
	p.WriteString("." + name)
	for _, a := range arguments {
		p.WriteString(` "` + escape(a) + `"`)
	}
	p.WriteString("\n")
}

func (p *page) section(name string) { p.request("SH", name) }

// text writes paragraphs, which empty lines part. An indented line stands for
// itself, as an example or a table does. The first paragraph begins where the
// page is.
func (p *page) text(text string) {
	asIs, part := false, false
	for i, line := range strings.Split(strings.TrimRight(text, "\n"), "\n") {
		if line == "" {
			part = true
			continue
		}
		indented := strings.HasPrefix(line, " ")
		if asIs && !indented {
			p.line(".fi")
		}
		if i > 0 && (part || indented != asIs) {
			p.line(".PP")
		}
		if indented && !asIs {
			p.line(".nf")
		}
		asIs, part = indented, false
		p.line(escape(line))
	}
	if asIs {
		p.line(".fi")
	}
}

// escape spells a text so that every character of it is shown, hyphens and
// quotation marks can be copied, and none begins a request.
func escape(text string) string {
	text = strings.NewReplacer(`\`, `\e`, `-`, `\-`, `'`, `\(aq`, `"`, `\(dq`, `^`, `\(ha`, `~`, `\(ti`, "`", `\(ga`).Replace(text)
	if strings.HasPrefix(text, ".") {
		return `\&` + text
	}
	return text
}
