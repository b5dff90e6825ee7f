package config

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// A problem is one thing that is wrong with the configuration.
type problem struct {
	file         string // "" when it came from no file
	line, column int    // from 1; 0 when the file does not mention the key
	key          string // "pool[1].prefix", counted from 0; "" when it is about no key
	reason       string
}

var index = regexp.MustCompile(`\[\d+\]`)

// A key is shown without its index: the line shows which one is meant.
func (p problem) Error() string {
	var where strings.Builder
	if p.file != "" {
		where.WriteString(p.file)
		if p.line > 0 {
			fmt.Fprintf(&where, ":%d:%d", p.line, p.column)
		}
		where.WriteString(": ")
	}
	if p.key != "" {
		where.WriteString(index.ReplaceAllString(p.key, "") + ": ")
	}
	return where.String() + p.reason
}

// Problems is everything that is wrong, a line each, so that a file is
// corrected in one go.
type Problems []problem

func (ps Problems) Error() string {
	lines := make([]string, len(ps))
	for i, p := range ps {
		lines[i] = p.Error()
	}
	return strings.Join(lines, "\n")
}

// err is nil when nothing is wrong.
func (ps Problems) err() error {
	if len(ps) == 0 {
		return nil
	}
	return ps
}

func (ps *Problems) add(key, format string, args ...any) {
	*ps = append(*ps, problem{key: key, reason: fmt.Sprintf(format, args...)})
}

// place sets where in the file each key is, and sorts by it.
func (ps Problems) place(file string, o outline) {
	for i := range ps {
		p := &ps[i]
		p.file = file
		if s, ok := o[p.key]; ok && p.line == 0 {
			p.line, p.column = s.line, s.column
		}
	}
	slices.SortStableFunc(ps, func(a, b problem) int {
		return cmp.Or(cmp.Compare(a.line, b.line), cmp.Compare(a.column, b.column))
	})
}
