package nft

import (
	"fmt"
	"slices"
	"strings"

	"github.com/google/nftables/expr"
)

// String is the table in nft's language, as it was described: rules that were read back have no text.
func (t *Table) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "table %s %s {\n", familyName(t.Family), t.Name)
	for _, s := range t.Sets {
		s.write(&b)
	}
	for _, c := range t.Chains {
		c.write(&b)
	}
	b.WriteString("}\n")
	return b.String()
}

func (s *Set) write(b *strings.Builder) {
	names := make([]string, len(s.Key))
	for i, t := range s.Key {
		names[i] = t.Name()
	}
	kind, typ := "set", strings.Join(names, " . ")
	if s.Verdicts {
		kind, typ = "map", typ+" : verdict"
	}
	fmt.Fprintf(b, "\t%s %s {\n\t\ttype %s\n", kind, s.Name, typ)
	if s.Size > 0 {
		fmt.Fprintf(b, "\t\tsize %d\n", s.Size)
	}
	switch {
	case s.Interval:
		b.WriteString("\t\tflags interval\n")
	case s.Dynamic && s.Timeout > 0:
		fmt.Fprintf(b, "\t\tflags dynamic,timeout\n\t\ttimeout %s\n", s.Timeout)
	case s.Dynamic:
		b.WriteString("\t\tflags dynamic\n")
	}
	if len(s.Elements) > 0 {
		lines := make([]string, len(s.Elements))
		for i, e := range s.Elements {
			lines[i] = s.Describe(e)
		}
		slices.Sort(lines)
		fmt.Fprintf(b, "\t\telements = { %s }\n", strings.Join(lines, ",\n\t\t\t     "))
	}
	b.WriteString("\t}\n\n")
}

// Describe writes an element of the set in nft's language.
func (s *Set) Describe(e Element) string {
	out := Format(s.Key, e.Key)
	if e.End != "" {
		last := strings.Split(Format(s.Key, e.End), " . ")
		first := strings.Split(out, " . ")
		for i := range first {
			if i < len(last) && first[i] != last[i] {
				first[i] += "-" + last[i]
			}
		}
		out = strings.Join(first, " . ")
	}
	if e.Comment != "" {
		out += fmt.Sprintf(" comment %q", e.Comment)
	}
	if s.Verdicts {
		out += " : " + strings.TrimSpace(fmt.Sprintf("%s %s", verdictName[e.Verdict.Kind], e.Verdict.Chain))
	}
	return out
}

func (c *Chain) write(b *strings.Builder) {
	fmt.Fprintf(b, "\tchain %s {\n", c.Name)
	if c.Base != nil {
		device := ""
		if c.Base.Device != "" {
			device = fmt.Sprintf(" device %q", c.Base.Device)
		}
		fmt.Fprintf(b, "\t\ttype filter hook %s%s priority %d; policy accept;\n", hookName(c.Base), device, c.Base.Priority)
	}
	for _, r := range c.Rules {
		fmt.Fprintf(b, "\t\t%s", r)
		if r.Why != "" {
			fmt.Fprintf(b, " comment %q", r.Why)
		}
		b.WriteString("\n")
	}
	b.WriteString("\t}\n\n")
}

func hookName(b *Base) string {
	if b.Device != "" {
		if b.Hook == Egress {
			return "egress"
		}
		return "ingress"
	}
	switch b.Hook {
	case Prerouting:
		return "prerouting"
	case Input:
		return "input"
	case Forward:
		return "forward"
	case Output:
		return "output"
	case Postrouting:
		return "postrouting"
	}
	return fmt.Sprint(uint32(b.Hook))
}

var verdictName = map[expr.VerdictKind]string{
	expr.VerdictAccept: "accept", expr.VerdictDrop: "drop", expr.VerdictReturn: "return", expr.VerdictJump: "jump", expr.VerdictGoto: "goto",
}
