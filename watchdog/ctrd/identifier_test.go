package ctrd

import (
	"strings"
	"testing"

	"github.com/containerd/containerd/v2/pkg/identifiers"

	"github.com/ipamd/ipamd/ipam"
)

// FuzzF21Identifier: the book's rule for the names of namespaces and containers
// is containerd's own. One that is narrower refuses a container that lives, one
// that is wider records a container that no look-up can ever confirm to be gone.
func FuzzF21Identifier(f *testing.F) {
	for _, name := range []string{"", "a", "A-1", "a--b", "a_-b", "-a", "a.", "a/b", "a b", "ä", "a\n", "default", "k8s.io",
		strings.Repeat("a", 76), strings.Repeat("a", 77), "a" + strings.Repeat("-b", 37), "a\x00", "\xff"} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		if theirs := identifiers.Validate(name); (theirs == nil) != ipam.IsIdentifier(name) {
			t.Errorf("%q: containerd says %v, the book %v", name, theirs, ipam.IsIdentifier(name))
		}
	})
}
