package layout

import (
	"encoding/json"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestModulesBesideStandAlone: what the tools import stays out of the daemon's
// go.mod, and they need nothing of ours, so that they build whatever state the
// house is in. The module bench is made of ours, and nothing of ours requires it.
func TestModulesBesideStandAlone(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(root, "tools/*/go.mod"))
	if err != nil || len(files) == 0 {
		t.Errorf("no tools: %v, %v", files, err)
	}
	for _, file := range append(files, filepath.Join(root, "go.mod")) {
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
