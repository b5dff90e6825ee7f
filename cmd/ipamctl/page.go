package main

import (
	"time"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/internal/poolmap"
	"github.com/ipamd/ipamd/internal/term"
)

// A page is an answer as a person reads it; its methods draw the parts of one, each in the file of
// its verb.
type page struct {
	term.Page
	now     func() time.Time
	wide    bool // all columns, and whole ids
	unicode bool // the terminal shows more than ASCII
}

// page starts an answer; width 0 is as wide as it gets.
func (c *ctl) page(width int) *page {
	return &page{Page: term.Page{Paint: c.colour(), Width: width}, now: c.now, wide: c.format.value == "wide", unicode: term.Unicode(c.getenv)}
}

// state is a state's word in its own colour.
func (p *page) state(s api.State) string { return poolmap.StateText(&p.Page, s) }

// part draws a table with a row for each item below a heading, and nothing where there
// are no items.
func part[T any](p *page, heading string, cols []term.Column, items []T, row func(T) []string) {
	if len(items) > 0 {
		p.Heading(heading)
		table(p, cols, items, row)
	}
}

func table[T any](p *page, cols []term.Column, items []T, row func(T) []string) {
	rows := make([][]string, len(items))
	for i, item := range items {
		rows[i] = row(item)
	}
	p.Table(cols, rows)
}
