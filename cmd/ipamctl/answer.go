package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf16"

	"github.com/ipamd/ipamd/internal/term"
	"go.yaml.in/yaml/v3"
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
		return encode(c.out, c.format.value, v)
	}
}

// note says something to a person beside the answer, on stderr, where no
// program reads it as data.
func (c *ctl) note(format string, args ...any) {
	if c.forPeople() && !c.quiet {
		fmt.Fprintf(c.err, format+"\n", args...)
	}
}

// encode writes v as indented JSON, or as the same tree in YAML.
func encode(w io.Writer, format string, v any) error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(v); err != nil {
		return fmt.Errorf("encode the answer: %w", err)
	}
	out := escape(b.String(), func(r rune) string {
		if r <= 0xffff {
			return fmt.Sprintf(`\u%04x`, r)
		}
		high, low := utf16.EncodeRune(r)
		return fmt.Sprintf(`\u%04x\u%04x`, high, low)
	})
	if format == "yaml" {
		var err error
		if out, err = asYAML(b.String()); err != nil {
			return fmt.Errorf("encode the answer: %w", err)
		}
	}
	if _, err := io.WriteString(w, out); err != nil {
		return fmt.Errorf("write the answer: %w", err)
	}
	return nil
}

// asYAML writes JSON, which is YAML in one style, in the style of blocks. The order of
// the fields stays, and so does each number.
func asYAML(doc string) (string, error) {
	long := func(r rune) string { return fmt.Sprintf(`\U%08x`, r) }
	var tree yaml.Node
	if err := yaml.Unmarshal([]byte(escape(doc, long)), &tree); err != nil {
		return "", err
	}
	block(&tree)
	var b strings.Builder
	enc := yaml.NewEncoder(&b)
	enc.SetIndent(2)
	err := enc.Encode(&tree)
	return escape(b.String(), long), err
}

// block has the encoder choose a style; a text that does not print is quoted.
func block(n *yaml.Node) {
	n.Style = 0
	if n.Tag == "!!str" && !term.Plain(n.Value) {
		n.Style = yaml.DoubleQuotedStyle
	}
	for _, child := range n.Content {
		block(child)
	}
}

// escape writes the runes that the encoders let through, but that a terminal
// may obey (DEL, the C1 controls) or hide (bidi marks), as the format's own
// escape. They occur only inside double quotes, where that means the same.
func escape(s string, as func(rune) string) string {
	var b strings.Builder
	for _, r := range s {
		if r < 0x7f || unicode.IsPrint(r) {
			b.WriteRune(r)
		} else {
			b.WriteString(as(r))
		}
	}
	return b.String()
}
