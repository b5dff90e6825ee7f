package layout

import (
	"os/exec"
	"strings"
	"testing"
)

// What is measured is containerd 2.x, so each target that measures builds it first.
func TestF26BenchBuildsTheContainerdThatItMeasures(t *testing.T) {
	for _, target := range []string{"bench", "bench-docs", "growth"} {
		cmd := exec.Command("make", "-n", "-C", root, target)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("make -n %s: %v\n%s", target, err, out)
		}
		built := strings.Index(string(out), "scripts/containerd2")
		measured := strings.Index(string(out), "-C bench run .")
		if built < 0 || measured < built {
			t.Errorf("make %s measures before it builds containerd 2.x:\n%s", target, out)
		}
	}
}

// -short leaves tests out: only `make check` asks for it.
func TestMakeTestLeavesNothingOut(t *testing.T) {
	for target, short := range map[string]bool{"test": false, "check": true} {
		out, err := exec.Command("make", "-n", "-C", root, target).CombinedOutput()
		if err != nil {
			t.Fatalf("make -n %s: %v\n%s", target, err, out)
		}
		if strings.Contains(string(out), "test -short") != short {
			t.Errorf("make %s: -short is not %v:\n%s", target, short, out)
		}
	}
}
