package main

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/dustin/go-humanize"

	"github.com/ipamd/ipamd/api"
)

// word returns an untrusted name (a sandbox, a label, a container) as it may
// stand on a terminal: as it is when every rune of it prints, else quoted and
// escaped. A sandbox may be called "\x1b[2J"; that must never clear a screen
// or rewrite a line that somebody decides by. What starts with a quote is
// quoted too, so that no name can pose as another one's quoted form.
func word(s string) string {
	if s == "" || s != strings.TrimSpace(s) || strings.HasPrefix(s, `"`) || !plain(s) {
		return strconv.Quote(s)
	}
	return s
}

// sentence makes a message of the daemon fit to print on one line; its words
// stay as they are, whatever does not print is escaped.
func sentence(s string) string {
	if plain(s) {
		return s
	}
	var b strings.Builder
	for len(s) > 0 {
		r, size := utf8.DecodeRuneInString(s)
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&b, `\x%02x`, s[0])
		case unicode.IsPrint(r):
			b.WriteRune(r)
		default:
			b.WriteString(strings.Trim(strconv.QuoteRune(r), "'"))
		}
		s = s[size:]
	}
	return b.String()
}

func plain(s string) bool {
	return utf8.ValidString(s) && strings.IndexFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) < 0
}

// maybe is word for a name that may be absent.
func maybe(s string) string {
	if s == "" {
		return "-"
	}
	return word(s)
}

// span is a duration in the two units that matter: 12s, 3m12s, 5h3m, 4d2h.
func span(d time.Duration) string {
	days := d / (24 * time.Hour)
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%dm%ds", d/time.Minute, d%time.Minute/time.Second)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh%dm", d/time.Hour, d%time.Hour/time.Minute)
	default:
		return fmt.Sprintf("%dd%dh", days, (d-days*24*time.Hour)/time.Hour)
	}
}

// ago tells a time by its distance from now.
func (c *ctl) ago(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	switch d := c.now().Sub(t); {
	case d > -time.Second && d < time.Second:
		return "just now"
	case d < 0:
		return "in " + span(-d)
	default:
		return span(d) + " ago"
	}
}

// when tells a time both ways, the absolute one for comparing with logs.
func (c *ctl) when(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return fmt.Sprintf("%s (%s)", c.ago(t), t.In(c.now().Location()).Format(time.RFC3339))
}

// count writes a number with its thousands set apart. A pool of IPv6 holds
// more than anybody counts; there the magnitude is what is wanted.
func count(n uint64) string {
	if n >= 1e12 {
		return magnitude(float64(n))
	}
	return strings.ReplaceAll(humanize.Comma(int64(n)), ",", " ")
}

func magnitude(f float64) string {
	return "about " + strings.Replace(strconv.FormatFloat(f, 'e', 1, 64), "e+", "e", 1)
}

// plural is "1 lease", "2 leases", "2 addresses".
func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	if strings.HasSuffix(noun, "s") {
		noun += "e"
	}
	return count(uint64(n)) + " " + noun + "s"
}

// labels writes labels in the order of their keys.
func labels(m map[string]string) string {
	var pairs []string
	for _, key := range slices.Sorted(maps.Keys(m)) {
		pairs = append(pairs, word(key)+"="+word(m[key]))
	}
	return strings.Join(pairs, " ")
}

func container(c api.Container) string { return word(c.Namespace) + "/" + word(c.ID) }

// seen is what one sighting says, in a line.
func (c *ctl) seen(s api.Sighting) string {
	var parts []string
	add := func(name, value string) {
		if value != "" {
			parts = append(parts, name+" "+word(value))
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
		parts = append(parts, sentence(s.Note))
	}
	if !s.At.IsZero() {
		parts = append(parts, c.ago(s.At))
	}
	return strings.Join(parts, ", ")
}
