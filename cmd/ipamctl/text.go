package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/internal/term"
)

// ago writes a time by its distance from now.
func (p *page) ago(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	switch d := p.now().Sub(t); {
	case d > -time.Second && d < time.Second:
		return "just now"
	case d < 0:
		return "in " + term.Span(-d)
	default:
		return term.Span(d) + " ago"
	}
}

// when writes a time both ways, the absolute one for comparing with logs.
func (p *page) when(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return fmt.Sprintf("%s (%s)", p.ago(t), t.In(p.now().Location()).Format(time.RFC3339))
}

// labels writes labels in the order of their keys.
func labels(m map[string]string) string {
	var pairs []string
	for _, key := range slices.Sorted(maps.Keys(m)) {
		pairs = append(pairs, term.Word(key)+"="+term.Word(m[key]))
	}
	return strings.Join(pairs, " ")
}

func container(c api.Container) string { return term.Word(c.Namespace) + "/" + term.Word(c.ID) }

// seen is what one sighting says, in a line.
func (p *page) seen(s api.Sighting) string {
	var parts []string
	add := func(name, value string) {
		if value != "" {
			parts = append(parts, name+" "+term.Word(value))
		}
	}
	add("sandbox", s.Sandbox)
	if s.Container != "" {
		parts = append(parts, "container "+container(api.Container{Namespace: s.Namespace, ID: s.Container}))
	}
	add("task", s.Task)
	add("port", s.Port)
	add("mac", s.MAC)
	add("netns", s.Netns)
	add("lease", s.LeaseID)
	add("bridge", s.Bridge)
	if s.Note != "" {
		parts = append(parts, term.Sentence(s.Note))
	}
	if !s.At.IsZero() {
		parts = append(parts, p.ago(s.At))
	}
	return strings.Join(parts, ", ")
}
