package ipam

import (
	"encoding/json"
	"fmt"
	"regexp"
	"time"
	"unicode/utf8"
)

// Limits of what a caller may write into the book.
const (
	MaxName       = 253 // bytes of a sandbox's name or uid
	MaxInterface  = 15  // IFNAMSIZ without its NUL
	MaxLabels     = 64
	MaxLabelKey   = 253
	MaxLabelText  = 4096
	MaxLabelBytes = 16 << 10 // of all labels of a lease, keys and values: every lease is held in memory
	MaxBindWait   = 24 * time.Hour
	MaxNote       = 1000 // bytes of what an operator writes down
	MaxContainers = 256  // that a lease records
)

// A FieldError names the argument that is wrong and why. It is [ErrInvalid].
type FieldError struct {
	Field  string
	Reason string
}

func (e *FieldError) Error() string { return fmt.Sprintf("%s: %s", e.Field, e.Reason) }

func (e *FieldError) Unwrap() error { return ErrInvalid }

func Invalid(field, format string, args ...any) error {
	return &FieldError{Field: field, Reason: fmt.Sprintf(format, args...)}
}

func CheckName(field, s string) error {
	switch {
	case s == "":
		return Invalid(field, "is empty")
	case len(s) > MaxName:
		return Invalid(field, "has %d bytes, more than %d", len(s), MaxName)
	case !utf8.ValidString(s):
		return Invalid(field, "is not UTF-8")
	}
	return nil
}

// IsInterface reports whether the kernel takes a name for an interface.
func IsInterface(s string) bool { return CheckInterface(s) == nil }

func CheckInterface(s string) error {
	if s == "" || len(s) > MaxInterface || s == "." || s == ".." {
		return Invalid("interface", "%q is no interface name of 1 to %d bytes", s, MaxInterface)
	}
	for _, c := range []byte(s) {
		if c <= ' ' || c >= 0x7f || c == '/' || c == ':' {
			return Invalid("interface", "%q has a character that an interface name cannot have", s)
		}
	}
	return nil
}

func CheckLabels(labels map[string]string) error {
	if len(labels) > MaxLabels {
		return Invalid("labels", "%d are more than %d", len(labels), MaxLabels)
	}
	size := 0
	for k, v := range labels {
		size += len(k) + len(v)
		switch {
		case k == "" || len(k) > MaxLabelKey || !utf8.ValidString(k):
			return Invalid("labels", "key %.40q is not 1 to %d bytes of UTF-8", k, MaxLabelKey)
		case len(v) > MaxLabelText || !utf8.ValidString(v):
			return Invalid("labels", "value of %.40q is not up to %d bytes of UTF-8", k, MaxLabelText)
		}
	}
	if size > MaxLabelBytes {
		return Invalid("labels", "have %d bytes together, more than %d", size, MaxLabelBytes)
	}
	return nil
}

// The rule of containerd for the names of namespaces and containers
// (pkg/identifiers). The book repeats it, because it must not import containerd:
// a container whose name containerd refuses is one that no look-up can ever
// confirm to be gone. A test of watchdog/ctrd holds the two together.
const maxIdentifier = 76 // bytes

var identifier = regexp.MustCompile(`^[A-Za-z0-9]+(?:[._-][A-Za-z0-9]+)*$`)

// IsIdentifier reports whether a namespace or a container of containerd can
// have this name.
func IsIdentifier(s string) bool { return len(s) <= maxIdentifier && identifier.MatchString(s) }

// checkContainers names the first container that there cannot be.
func checkContainers(field string, all []Container) error {
	if len(all) > MaxContainers {
		return Invalid(field, "%d are more than %d", len(all), MaxContainers)
	}
	for i, c := range all {
		for _, part := range [...]struct{ of, name string }{{"namespace", c.Namespace}, {"id", c.ID}} {
			if !IsIdentifier(part.name) {
				return Invalid(fmt.Sprintf("%s[%d].%s", field, i, part.of),
					"%.80q is no name that containerd allows: up to %d letters and digits, with single dots, dashes or underscores between them", part.name, maxIdentifier)
			}
		}
	}
	return nil
}

// CheckEvidence refuses what is empty: a quarantine that cannot be
// explained later is one that no operator dares to clear.
func CheckEvidence(evidence json.RawMessage) error {
	var reports []json.RawMessage
	if err := json.Unmarshal(evidence, &reports); err != nil || len(reports) == 0 {
		return Invalid("evidence", "%.40q is no JSON array with something in it", evidence)
	}
	return nil
}

// CheckSeen is CheckEvidence where there may be none.
func CheckSeen(evidence json.RawMessage) error {
	if len(evidence) == 0 {
		return nil
	}
	return CheckEvidence(evidence)
}

// CheckNote refuses an operator's verb without words: a person who meets what
// was done wants to know why.
func CheckNote(words string) error {
	if words == "" || len(words) > MaxNote || !utf8.ValidString(words) {
		return Invalid("reason", "%.40q is not 1 to %d bytes of UTF-8", words, MaxNote)
	}
	return nil
}
