package layout

import (
	"os/exec"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	edits = regexp.MustCompile(`(?m)^ +sed -i '(s/[^']*/)' (\S+)$`)
	runs  = regexp.MustCompile(`(?m)^ +.*go test .*-run '?([\w|]+)'?.*$`)
	dirs  = regexp.MustCompile(`\./([\w/-]+)`)
)

// An edit that a page has a reader make changes the file that it names, and a test that it
// names exists: an edit that matches nothing breaks no rule, and the test that is to
// fail stays green.
func TestCommandsOfThePagesDoWhatTheySay(t *testing.T) {
	have := tests(t)
	edited, run := 0, 0
	for _, page := range documents {
		body := text(t, page)
		for _, m := range edits.FindAllStringSubmatch(body, -1) {
			edited++
			sed := exec.Command("sed", "-n", m[1]+"p", m[2])
			sed.Dir = root
			if out, err := sed.CombinedOutput(); err != nil || len(out) == 0 {
				t.Errorf("%s: the edit %s changes nothing in %s: %s %v", page, m[1], m[2], out, err)
			}
		}
		for _, m := range runs.FindAllStringSubmatch(body, -1) {
			run++
			for _, name := range strings.Split(m[1], "|") {
				found := false
				for _, dir := range dirs.FindAllStringSubmatch(m[0], -1) {
					found = found || slices.ContainsFunc(have[path.Clean(dir[1])], func(test string) bool { return strings.Contains(test, name) })
				}
				if !found {
					t.Errorf("%s: no test matches -run %s in %q", page, name, strings.TrimSpace(m[0]))
				}
			}
		}
	}
	if edited < 2 || run < 3 {
		t.Errorf("%d edits and %d tests were found in the pages", edited, run)
	}
}
