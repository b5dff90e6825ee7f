package main

import (
	"fmt"

	"github.com/ipamd/ipamd/internal/term"
)

// answer writes a verb's result in the form that was asked for: v as JSON or
// YAML, ids one a line, or what draw puts on a page.
func (c *ctl) answer(v any, ids []string, draw func(*page)) error {
	switch {
	case c.quiet:
		for _, id := range ids {
			if _, err := fmt.Fprintln(c.out, term.Sentence(id)); err != nil {
				return fmt.Errorf("write the answer: %w", err)
			}
		}
		return nil
	case c.forPeople():
		width := 0
		if c.terminal {
			width = c.width()
		}
		p := c.page(width)
		draw(p)
		if _, err := p.WriteTo(c.out); err != nil {
			return fmt.Errorf("write the answer: %w", err)
		}
		return nil
	default:
		return term.Encode(c.out, c.format.value, v)
	}
}

// note says something to a person beside the answer, on stderr, where no
// program reads it as data.
func (c *ctl) note(format string, args ...any) {
	if c.forPeople() && !c.quiet {
		fmt.Fprintf(c.err, format+"\n", args...)
	}
}
