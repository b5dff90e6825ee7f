package build

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// The changelog begins with the version of the tree, or with what is unreleased while
// the version is one to come.
func TestVersionIsTheChangelogs(t *testing.T) {
	b, err := os.ReadFile("../../CHANGELOG.md")
	if err != nil {
		t.Fatal(err)
	}
	newest := regexp.MustCompile(`(?m)^## \[(.+?)\]`).FindStringSubmatch(string(b))
	if newest == nil {
		t.Fatal("CHANGELOG.md has no version")
	}
	want := Version
	if strings.HasSuffix(Version, "-dev") {
		want = "Unreleased"
	}
	if newest[1] != want {
		t.Errorf("CHANGELOG.md begins with %s; the tree is %s", newest[1], Version)
	}
}
