package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/internal/term"
)

func (p *page) whenKnown(at *time.Time) string {
	if at == nil {
		return ""
	}
	return p.when(*at)
}

// sleep is how a sandbox is paused, and what wakes it.
func sleep(s *api.Sleep) string {
	if s == nil {
		return ""
	}
	parts := []string{term.Word(string(s.Mode))}
	if s.Do {
		parts = append(parts, "done by ipamd")
	}
	w := s.Wake
	if w == nil {
		return strings.Join(append(parts, "no traffic wakes it"), ", ")
	}
	wakes := "woken by " + term.Word(strings.Join(w.Protocols, ","))
	if len(w.Ports) > 0 {
		wakes += " to " + term.Word(strings.Join(w.Ports, ","))
	}
	if len(w.Sources) > 0 {
		wakes += " from " + term.Word(strings.Join(w.Sources, ","))
	}
	parts = append(parts, wakes)
	if w.RepauseAfter != "" {
		parts = append(parts, "paused again after "+term.Word(string(w.RepauseAfter)))
	}
	return strings.Join(parts, ", ")
}

// flight is the wake that is under way, or the last one.
func (p *page) flight(s *api.Sleep) string {
	if s == nil || s.Flight == nil {
		return ""
	}
	f := s.Flight
	by := "asked for by a call"
	if f.Cause.Source != "" {
		by = fmt.Sprintf("by %s from %s", term.Word(f.Cause.Protocol), term.Word(f.Cause.Source))
		if f.Cause.Port != 0 {
			by += fmt.Sprintf(" to port %d", f.Cause.Port)
		}
	}
	if f.Ended == nil {
		return fmt.Sprintf("%s since %s, %s", term.Word(f.Phase), p.when(f.Begun), by)
	}
	text := fmt.Sprintf("%s in %v, %s, %s", term.Word(f.Result), f.Ended.Sub(f.Begun).Round(time.Millisecond), by, p.when(f.Begun))
	if f.Detail != "" {
		text += ": " + term.Sentence(f.Detail)
	}
	return text
}
