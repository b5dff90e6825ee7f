package layout

import (
	"encoding/json"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestModulesBesideStandAlone: what the tools and the peers import stays out
// of the daemon's go.mod, and they need nothing of ours, so that they build
// whatever state the house is in.
func TestModulesBesideStandAlone(t *testing.T) {
	for _, pattern := range []string{"tools/*/go.mod", "bench/*/go.mod"} {
		files, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil || len(files) == 0 {
			t.Errorf("%s: %v, %v", pattern, files, err)
		}
		for _, file := range files {
			cmd := exec.Command("go", "mod", "edit", "-json")
			cmd.Dir = filepath.Dir(file)
			out, err := cmd.Output()
			if err != nil {
				t.Errorf("read %s: %v", file, err)
				continue
			}
			var mod struct{ Require []struct{ Path string } }
			if err := json.Unmarshal(out, &mod); err != nil {
				t.Fatal(err)
			}
			for _, r := range mod.Require {
				if r.Path == module || strings.HasPrefix(r.Path, module+"/") {
					t.Errorf("%s requires %s", file, r.Path)
				}
			}
		}
	}
}
