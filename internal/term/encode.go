package term

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf16"

	"go.yaml.in/yaml/v3"
)

// Encode writes v as indented JSON, or as the same tree in YAML, without a rune that a
// terminal may obey.
func Encode(w io.Writer, format string, v any) error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(v); err != nil {
		return fmt.Errorf("encode the answer: %w", err)
	}
	out := EscapeJSON(b.String())
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

// EscapeJSON takes the runes that a terminal may obey out of a JSON document, which stays the same.
func EscapeJSON(doc string) string {
	return escape(doc, func(r rune) string {
		if r <= 0xffff {
			return fmt.Sprintf(`\u%04x`, r)
		}
		high, low := utf16.EncodeRune(r)
		return fmt.Sprintf(`\u%04x\u%04x`, high, low)
	})
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
	if n.Tag == "!!str" && !Plain(n.Value) {
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
