package systemd

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/ipamd/ipamd/internal/realtest"
)

// units are all that there are.
var units = []string{"ipamd.service", "ipamd.socket", "ipamd-docker.service", "ipamd-docker.socket", "ipamd-plumb.service", "ipamd-warm.service"}

// exposure is the most that systemd-analyze may say of a service, in tenths of its points.
var exposure = map[string]int{"ipamd.service": 20, "ipamd-docker.service": 12, "ipamd-plumb.service": 20, "ipamd-warm.service": 39}

// TestUnitsAreSound: systemd finds nothing to say about the units, in a tree
// where what they start is there.
func TestUnitsAreSound(t *testing.T) {
	realtest.Need(t, "systemd-analyze")
	root := t.TempDir()
	into := filepath.Join(root, "etc/systemd/system")
	for _, dir := range []string{into, filepath.Join(root, "usr/sbin"), filepath.Join(root, "usr/lib/systemd/system"), filepath.Join(root, "bin")} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, program := range []string{"usr/sbin/ipamd", "bin/sh"} {
		if err := os.WriteFile(filepath.Join(root, program), []byte("#!"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, unit := range units {
		text, err := os.ReadFile(unit)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(into, unit), text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	// The targets that they name.
	for _, name := range []string{"sysinit.target", "basic.target", "sockets.target", "shutdown.target", "multi-user.target", "network.target",
		"-.mount", "-.slice", "system.slice", "containerd.service", "tmp.mount", "local-fs.target", "paths.target", "timers.target", "slices.target"} {
		text := "[Unit]\nDescription=" + name + "\n"
		switch {
		case name == "containerd.service":
			text += "[Service]\nExecStart=/usr/sbin/ipamd\n"
		case strings.HasSuffix(name, ".mount"):
			continue
		}
		if err := os.WriteFile(filepath.Join(root, "usr/lib/systemd/system", name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	out, err := exec.Command("systemd-analyze", append([]string{"verify", "--man=no", "--root=" + root}, units...)...).CombinedOutput()
	if err != nil || len(out) > 0 {
		t.Errorf("systemd-analyze verify: %v\n%s", err, out)
	}
}

// TestServiceIsClosed holds how much of the machine the services can reach. The
// figure is systemd's own.
func TestServiceIsClosed(t *testing.T) {
	realtest.Need(t, "systemd-analyze")
	for unit, most := range exposure {
		out, err := exec.Command("systemd-analyze", "security", "--no-pager", "--offline=true", "--threshold="+strconv.Itoa(most), "./"+unit).CombinedOutput()
		figure := regexp.MustCompile(`Overall exposure level for ` + unit + `: ([0-9.]+)`).FindSubmatch(out)
		if err != nil || figure == nil {
			t.Fatalf("systemd-analyze security: %v\n%s", err, out)
		}
		t.Logf("%s: exposure %s, of at most %.1f", unit, figure[1], float64(most)/10)
	}
}
