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
func (c *ctl) answer(v any, ids []string, draw func(*term.Page)) error {
	switch {
	case c.quiet:
		for _, id := range ids {
			if _, err := fmt.Fprintln(c.out, term.Sentence(id)); err != nil {
				return fmt.Errorf("write the answer: %w", err)
			}
		}
		return nil
	case c.forPeople():
		p := &term.Page{Paint: c.colour()}
		if c.terminal {
			p.Width = c.width()
		}
		draw(p)
		_, err := p.WriteTo(c.out)
		if err != nil {
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
		tree, err := yamlTree(b.Bytes())
		if err != nil {
			return fmt.Errorf("encode the answer: %w", err)
		}
		b.Reset()
		enc := yaml.NewEncoder(&b)
		enc.SetIndent(2)
		if err := enc.Encode(tree); err != nil {
			return fmt.Errorf("encode the answer: %w", err)
		}
		out = escape(b.String(), func(r rune) string { return fmt.Sprintf(`\U%08x`, r) })
	}
	if _, err := io.WriteString(w, out); err != nil {
		return fmt.Errorf("write the answer: %w", err)
	}
	return nil
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

// yamlTree reads JSON into a YAML tree that keeps the order of the fields
// and writes each number as it stands.
func yamlTree(doc []byte) (*yaml.Node, error) {
	dec := json.NewDecoder(bytes.NewReader(doc))
	dec.UseNumber()
	return yamlValue(dec)
}

func yamlValue(dec *json.Decoder) (*yaml.Node, error) {
	token, err := dec.Token()
	if err != nil {
		return nil, err
	}
	switch t := token.(type) {
	case json.Delim:
		node := &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq"}
		if t == '{' {
			node.Kind, node.Tag = yaml.MappingNode, "!!map"
		}
		for dec.More() { // in an object keys and values take turns
			child, err := yamlValue(dec)
			if err != nil {
				return nil, err
			}
			node.Content = append(node.Content, child)
		}
		_, err := dec.Token()
		return node, err
	case string:
		node := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: t}
		if !term.Plain(t) {
			node.Style = yaml.DoubleQuotedStyle
		}
		return node, nil
	case json.Number:
		tag := "!!int"
		if strings.ContainsAny(t.String(), ".eE") {
			tag = "!!float"
		}
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: tag, Value: t.String()}, nil
	case bool:
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!bool", Value: fmt.Sprint(t)}, nil
	default:
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!null", Value: "null"}, nil
	}
}
