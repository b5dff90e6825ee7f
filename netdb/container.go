package netdb

import (
	"fmt"
	"regexp"
)

// The rule of containerd for the names of namespaces and containers
// (pkg/identifiers). The book repeats it, because it must not import containerd:
// a container whose name containerd refuses is one that no look-up can ever
// confirm to be gone. A test of watchdog/ctrd holds the two together.
const maxIdentifier = 76 // bytes

var identifier = regexp.MustCompile(`^[A-Za-z0-9]+(?:[._-][A-Za-z0-9]+)*$`)

// IsIdentifier reports whether a namespace or a container of containerd can
// have this name.
func IsIdentifier(s string) bool { return len(s) <= maxIdentifier && identifier.MatchString(s) }

// MaxContainers is how many containers a lease records.
const MaxContainers = 256

// checkContainers names the first container that there cannot be.
func checkContainers(field string, all []Container) error {
	if len(all) > MaxContainers {
		return invalid(field, "%d are more than %d", len(all), MaxContainers)
	}
	for i, c := range all {
		for _, part := range [...]struct{ of, name string }{{"namespace", c.Namespace}, {"id", c.ID}} {
			if !IsIdentifier(part.name) {
				return invalid(fmt.Sprintf("%s[%d].%s", field, i, part.of),
					"%.80q is no name that containerd allows: up to %d letters and digits, with single dots, dashes or underscores between them", part.name, maxIdentifier)
			}
		}
	}
	return nil
}
