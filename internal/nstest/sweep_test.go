package nstest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

func TestWhatKilledRunsLeftIsSwept(t *testing.T) {
	lives := New(t)
	ended := exec.Command("true")
	if err := ended.Run(); err != nil {
		t.Fatal(err)
	}
	left := fmt.Sprintf("nstest-%d-left", ended.Process.Pid)
	if out, err := exec.Command("ip", "netns", "add", left).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	sweep()
	if _, err := os.Stat(filepath.Join(namedDir, left)); !os.IsNotExist(err) {
		t.Errorf("%s of a process that ended: %v", left, err)
	}
	if _, err := os.Stat(lives.Path()); err != nil {
		t.Errorf("one of a process that lives: %v", err)
	}
}
