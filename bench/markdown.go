package main

import (
	"fmt"
	"os"
	"strings"
)

// The measured part of a document is between these lines.
const (
	measuredBegin = "<!-- measured: written by `make bench-docs` -->"
	measuredEnd   = "<!-- end of what was measured -->"
)

// markdown is the table as Markdown.
func (t table) markdown() string {
	var s strings.Builder
	for i, line := range t {
		fmt.Fprintf(&s, "| %s |\n", cells(line))
		if i == 0 {
			s.WriteString("|" + strings.Repeat("---|", len(line)) + "\n")
		}
	}
	return s.String()
}

// cells are a line's, in which nothing is taken for Markdown's own.
func cells(line []string) string {
	out := make([]string, len(line))
	for i, cell := range line {
		out[i] = strings.NewReplacer("<", "&lt;", "|", "&#124;").Replace(cell)
	}
	return strings.Join(out, " | ")
}

// rewrite replaces the measured part of a document.
func rewrite(path, machine string, tables []table) error {
	old, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	before, rest, begins := strings.Cut(string(old), measuredBegin)
	_, after, ends := strings.Cut(rest, measuredEnd)
	if !begins || !ends {
		return fmt.Errorf("%s has not the lines %q and %q", path, measuredBegin, measuredEnd)
	}
	parts := []string{measuredBegin, "```\n" + machine + "```"}
	for _, t := range tables {
		parts = append(parts, strings.TrimSuffix(t.markdown(), "\n"))
	}
	body := before + strings.Join(append(parts, measuredEnd), "\n\n") + after
	return os.WriteFile(path, []byte(body), 0o644)
}
