package term

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/dustin/go-humanize"
)

// Word returns an untrusted name (a sandbox, a label, a container) as it may
// stand on a terminal: as it is when every rune of it prints, else quoted and
// escaped. A sandbox may be called "\x1b[2J"; that must never clear a screen
// or rewrite a line that a person decides by. What starts with a quote is
// quoted too, so that no name can pose as another one's quoted form.
func Word(s string) string {
	if s == "" || s != strings.TrimSpace(s) || strings.HasPrefix(s, `"`) || !Plain(s) {
		return strconv.Quote(s)
	}
	return s
}

// Sentence makes a message of the daemon fit to print on one line; its words
// stay as they are, whatever does not print is escaped.
func Sentence(s string) string {
	if Plain(s) {
		return s
	}
	return printable(s, "")
}

// Lines writes sentences of several lines as [Sentence] does one: line ends and tabs stay. A
// rune comes in one write.
type Lines struct{ io.Writer }

func (l Lines) Write(text []byte) (int, error) {
	if _, err := io.WriteString(l.Writer, printable(string(text), "\n\t")); err != nil {
		return 0, err
	}
	return len(text), nil
}

// printable escapes the runes that do not print, but those of keep.
func printable(s, keep string) string {
	var b strings.Builder
	for len(s) > 0 {
		r, size := utf8.DecodeRuneInString(s)
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&b, `\x%02x`, s[0])
		case unicode.IsPrint(r) || strings.ContainsRune(keep, r):
			b.WriteRune(r)
		default:
			b.WriteString(strings.Trim(strconv.QuoteRune(r), "'"))
		}
		s = s[size:]
	}
	return b.String()
}

// Plain reports that every rune of a text prints.
func Plain(s string) bool {
	return utf8.ValidString(s) && strings.IndexFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) < 0
}

// Maybe is word for a name that may be absent.
func Maybe(s string) string {
	if s == "" {
		return "-"
	}
	return Word(s)
}

// Span is a duration in the two units that matter: 12s, 3m12s, 5h3m, 4d2h.
func Span(d time.Duration) string {
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

// Count writes a number with its thousands set apart. A pool of IPv6 holds
// More than a person counts; there the magnitude is what is wanted.
func Count(n uint64) string {
	if n >= 1e12 {
		return Magnitude(float64(n))
	}
	return strings.ReplaceAll(humanize.Comma(int64(n)), ",", " ")
}

func Magnitude(f float64) string {
	return "about " + strings.Replace(strconv.FormatFloat(f, 'e', 1, 64), "e+", "e", 1)
}

// Plural is "1 lease", "2 leases", "2 addresses".
func Plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	if strings.HasSuffix(noun, "s") {
		noun += "e"
	}
	return Count(uint64(n)) + " " + noun + "s"
}

// Pad fills a text with spaces up to a width in columns.
func Pad(s string, width int) string { return s + strings.Repeat(" ", max(width-Width(s), 0)) }
