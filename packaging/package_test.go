package packaging

import (
	"bytes"
	"debug/elf"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/ipamd/ipamd/internal/realtest"
)

// run runs a command in a folder and returns what it printed.
func run(t *testing.T, dir, program string, args ...string) string {
	t.Helper()
	cmd := exec.Command(program, args...)
	cmd.Dir = dir
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s %q: %v\n%s%s", program, args, err, out.String(), errs.String())
	}
	return out.String()
}

// A tree is a copy of the source, at its commit and with what was changed since.
func tree(t *testing.T, from, to string) string {
	t.Helper()
	run(t, ".", "git", "clone", "-q", "--shared", "--no-checkout", from, to)
	run(t, from, "bash", "-c", `set -o pipefail
		git ls-files -z -co --exclude-standard |
			while IFS= read -rd '' f; do [[ -e $f ]] && printf '%s\0' "$f"; done |
			tar --null -T - -cf - | tar -C "$1" -mxf - --no-same-permissions`, "-", to)
	run(t, to, "git", "reset", "-q")
	return to
}

func deb(t *testing.T, tree string) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(tree, "bin/ipamd_*.deb"))
	if err != nil || len(found) != 1 {
		t.Fatalf("packages %q, %v", found, err)
	}
	return found[0]
}

// TestPackage builds what a release is and looks at it as its users do.
func TestPackage(t *testing.T) {
	realtest.Root(t)
	realtest.Need(t, "git", "make", "dpkg-deb", "man", "mandoc", "groff", "unshare")
	tmp := t.TempDir()
	t.Chdir("..")
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	// Another place, umask, time zone, language and age of files.
	first := tree(t, here, filepath.Join(tmp, "first"))
	second := filepath.Join(tmp, "a longer", "second")
	if err := os.Mkdir(filepath.Dir(second), 0o700); err != nil {
		t.Fatal(err)
	}
	tree(t, first, second)
	run(t, first, "make", "-s", "deb")
	run(t, second, "env", "TZ=Pacific/Chatham", "LC_ALL=C.UTF-8", "GOFLAGS=-buildvcs=false", "bash", "-c", "umask 0077; chmod -R go-rwx .; exec make -s deb")

	pkg := deb(t, first)
	root := filepath.Join(tmp, "root")
	run(t, tmp, "dpkg-deb", "-x", pkg, root)

	t.Run("is the same from the same source", func(t *testing.T) {
		a, err := os.ReadFile(pkg)
		if err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(deb(t, second))
		if err != nil {
			t.Fatal(err)
		}
		if filepath.Base(pkg) != filepath.Base(deb(t, second)) || !bytes.Equal(a, b) {
			other := filepath.Join(tmp, "other")
			run(t, tmp, "dpkg-deb", "-R", deb(t, second), other)
			run(t, tmp, "dpkg-deb", "-R", pkg, root+".R")
			differs, _ := exec.Command("diff", "-rq", root+".R", other).CombinedOutput()
			t.Errorf("%s and %s differ: %s", pkg, deb(t, second), differs)
		}
	})
	t.Run("has its files with their modes", func(t *testing.T) { files(t, pkg) })
	t.Run("has static programs that know their version", func(t *testing.T) { programs(t, first, root, pkg) })
	t.Run("has a manual without a warning", func(t *testing.T) { pages(t, root) })
	t.Run("completes in bash", func(t *testing.T) { completions(t, root) })
	t.Run("has a configuration that changes nothing", func(t *testing.T) { configuration(t, root) })
	t.Run("goes where DESTDIR says", func(t *testing.T) { install(t, first, tmp) })
	t.Run("has a package beside it for callers of CNI", func(t *testing.T) { plugin(t, first, second) })
	t.Run("has a package beside it for Docker", func(t *testing.T) { driver(t, first, second) })
	t.Run("is installed and upgraded and purged, F32 from a mount too", func(t *testing.T) { live(t, here, tmp, pkg) })
}

func files(t *testing.T, pkg string) {
	line := regexp.MustCompile(`^(\S+) (\S+) +\S+ \S+ \S+ \.(/\S*)$`)
	modes := make(map[string]string)
	for l := range strings.Lines(run(t, ".", "dpkg-deb", "-c", pkg)) {
		m := line.FindStringSubmatch(strings.TrimSpace(l))
		if m == nil {
			t.Fatalf("what is %q?", l)
		}
		modes[m[3]] = m[1]
		want := "-rw-r--r--"
		if strings.HasSuffix(m[3], "/") {
			want = "drwxr-xr-x"
		} else if strings.Contains(m[3], "bin/") {
			want = "-rwxr-xr-x"
		}
		if m[1] != want || m[2] != "root/root" {
			t.Errorf("%s is %s %s, want %s root/root", m[3], m[1], m[2], want)
		}
	}
	for _, want := range []string{
		"/usr/sbin/ipamd", "/usr/bin/ipamctl", "/etc/ipamd/ipamd.toml",
		"/usr/lib/systemd/system/ipamd.service", "/usr/lib/systemd/system/ipamd.socket", "/usr/lib/systemd/system/ipamd-plumb.service", "/usr/lib/systemd/system/ipamd-warm.service",
		"/usr/lib/sysusers.d/ipamd.conf", "/usr/lib/tmpfiles.d/ipamd.conf",
		"/usr/share/man/man8/ipamd.8.gz", "/usr/share/man/man8/ipamd-rebuild.8.gz", "/usr/share/man/man5/ipamd.toml.5.gz",
		"/usr/share/man/man1/ipamctl.1.gz", "/usr/share/man/man1/ipamctl-status.1.gz", "/usr/share/man/man1/ipamctl-exit-codes.1.gz", "/usr/share/man/man1/ipamctl-pools.1.gz", "/usr/share/man/man8/ipamd-warm.8.gz",
		"/usr/share/bash-completion/completions/ipamctl", "/usr/share/zsh/vendor-completions/_ipamctl",
		"/usr/share/fish/vendor_completions.d/ipamctl.fish",
		"/usr/share/doc/ipamd/OPERATIONS.md.gz", "/usr/share/doc/ipamd/openapi.yaml.gz", "/usr/share/doc/ipamd/FEATURES.md.gz", "/usr/share/doc/ipamd/examples/networkd/rt0.network", "/usr/share/doc/ipamd/examples/python/lease.py",
		"/usr/share/doc/ipamd/copyright", "/usr/share/doc/ipamd/changelog.gz", "/usr/share/doc/ipamd/LICENSES.gz",
	} {
		if modes[want] == "" {
			t.Errorf("%s is missing", want)
		}
	}
	for _, path := range []string{"/usr/share/doc/ipamd/PROMISES.md.gz", "/usr/share/doc/ipamd/BENCHMARKS.md.gz"} {
		if modes[path] != "" {
			t.Errorf("%s is for who works on ipamd, and in the package", path)
		}
	}
	if conffiles := run(t, ".", "dpkg-deb", "-I", pkg, "conffiles"); conffiles != "/etc/ipamd/ipamd.toml\n" {
		t.Errorf("conffiles %q", conffiles)
	}
}

func programs(t *testing.T, tree, root, pkg string) {
	commit := strings.TrimSpace(run(t, tree, "git", "rev-parse", "HEAD"))
	version := strings.TrimSpace(run(t, tree, "dpkg-deb", "-f", pkg, "Version"))
	for _, program := range []string{"usr/sbin/ipamd", "usr/bin/ipamctl"} {
		f, err := elf.Open(filepath.Join(root, program))
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range f.Progs {
			if p.Type == elf.PT_INTERP || p.Type == elf.PT_DYNAMIC {
				t.Errorf("%s is not static: it has %v", program, p.Type)
			}
		}
		if f.Section(".symtab") != nil || f.Section(".debug_info") != nil {
			t.Errorf("%s is not stripped", program)
		}
		f.Close()
		info, err := os.Stat(filepath.Join(root, program))
		if err != nil {
			t.Fatal(err)
		}
		if info.Size() > 30e6 {
			t.Errorf("%s has %d bytes, and may have 30 MB", program, info.Size())
		}
		if info, err := exec.Command("go", "version", "-m", filepath.Join(root, program)).Output(); err != nil || !bytes.Contains(info, []byte("vcs.revision="+commit)) {
			t.Errorf("%s does not know the commit %s: %v", program, commit, err)
		}
	}
	says := run(t, tree, filepath.Join(root, "usr/sbin/ipamd"), "version")
	own, _, _ := strings.Cut(strings.TrimPrefix(says, "ipamd "), "\n")
	spelled, dev := strings.CutSuffix(own, "-dev")
	if dev {
		spelled += "~dev." // time and commit follow
	}
	if is := version == spelled || dev && strings.HasPrefix(version, spelled); !is || !strings.Contains(says, commit) {
		t.Errorf("the package is %s, and ipamd says %q", version, says)
	}
}

func pages(t *testing.T, root string) {
	found, err := filepath.Glob(filepath.Join(root, "usr/share/man/man*/*.gz"))
	if err != nil || len(found) < 20 {
		t.Fatalf("pages %q, %v", found, err)
	}
	for _, page := range found {
		text := run(t, ".", "gzip", "-dc", page)
		if to, alias := strings.CutPrefix(text, ".so "); alias {
			if to := filepath.Join(root, "usr/share/man", strings.TrimSpace(to)+".gz"); !slices.Contains(found, to) {
				t.Errorf("%s leads to %s, which is not there", page, to)
			}
			continue
		}
		for _, reader := range [][]string{
			{"man", "--warnings=w", "-l", page}, // each that groff has
			{"mandoc", "-Tlint", "-Wwarning", page},
		} {
			cmd := exec.Command(reader[0], reader[1:]...)
			cmd.Env = append(os.Environ(), "LC_ALL=C.UTF-8", "MANWIDTH=80")
			cmd.Stdin = strings.NewReader(text)
			var shown, wrong bytes.Buffer
			cmd.Stdout, cmd.Stderr = &shown, &wrong
			if err := cmd.Run(); err != nil || wrong.Len() > 0 || reader[0] == "mandoc" && shown.Len() > 0 {
				t.Errorf("%s of %s: %v\n%s%s", reader[0], filepath.Base(page), err, wrong.String(), shown.String())
			}
			if footer := regexp.MustCompile(`[^ \n]  +\d{4}-\d\d-\d\d  +[^ \n]+\n?$`); reader[0] == "man" && !footer.MatchString(strings.TrimRight(shown.String(), "\n")) {
				t.Errorf("the footer of %s runs together: %q", filepath.Base(page), shown.String()[max(shown.Len()-90, 0):])
			}
		}
	}
	// Each reference to a page of ours leads somewhere.
	for _, page := range found {
		for _, m := range regexp.MustCompile(`(ipam[a-z.\\-]+)(?:\\fR)?\(([158])\)`).FindAllStringSubmatch(run(t, ".", "gzip", "-dc", page), -1) {
			name := strings.ReplaceAll(m[1], `\-`, "-") + "." + m[2] + ".gz"
			if !slices.ContainsFunc(found, func(p string) bool { return filepath.Base(p) == name }) {
				t.Errorf("%s refers to %s, which is not there", filepath.Base(page), name)
			}
		}
	}
}

func completions(t *testing.T, root string) {
	const helpers = "/usr/share/bash-completion/bash_completion"
	const complete = `
		PATH=$PWD/usr/bin:$PWD/usr/sbin:$PATH
		source "$1" && source "usr/share/bash-completion/completions/$2" || exit
		COMP_WORDS=("${@:2}") COMP_LINE="${*:2}" COMP_TYPE=9
		COMP_CWORD=$((${#COMP_WORDS[@]} - 1)) COMP_POINT=${#COMP_LINE}
		"__start_$2"
		echo "${COMPREPLY[*]}"`
	if _, err := os.Stat(helpers); err != nil {
		realtest.Lack(t, "needs the package bash-completion")
	}
	for line, want := range map[string]string{"ipamctl stat": "status", "ipamd rebu": "rebuild", "ipamctl leases --stat": "--state"} {
		args := append([]string{"--norc", "-c", complete, "-", helpers}, strings.Fields(line)...)
		out := run(t, root, "bash", args...)

		if strings.TrimSpace(out) != want {
			t.Errorf("%q becomes %q, want %q", line, out, want)
		}
	}
}

// Of its keys only the pool's own are set. Each other one is a comment that, alone
// or with all others, stands in its own table once it is uncommented.
func configuration(t *testing.T, root string) {
	ipamd, file := filepath.Join(root, "usr/sbin/ipamd"), filepath.Join(root, "etc/ipamd/ipamd.toml")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		key, _, _ := strings.Cut(strings.TrimSpace(line), " ")
		if key != "" && key[0] != '#' && key[0] != '[' && key != "name" && key != "prefix" {
			t.Errorf("sets %s", line)
		}
	}
	dir := t.TempDir()
	effective := func(name string, document []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, document, 0o600); err != nil {
			t.Fatal(err)
		}
		// The host may lack the group, which is said on stderr (F32).
		output, _ := exec.Command(ipamd, "config", "--config", path).Output()
		if !bytes.Contains(output, []byte("[socket]")) {
			t.Errorf("%s: it prints %s", name, output)
		}
		return string(output)
	}
	defaults := effective("none", nil)
	if effective("installed", text) != defaults {
		t.Error("with it ipamd is not as without one")
	}
	option := regexp.MustCompile(`(?m)^#([a-z_]+ = )`)
	for i, at := range option.FindAllIndex(text, -1) {
		one := slices.Concat(text[:at[0]], text[at[0]+1:])
		if name := fmt.Sprintf("option %d", i); effective(name, one) != defaults {
			t.Errorf("%s uncommented alone is not the default", text[at[0]:at[1]])
		}
	}
	if effective("every", option.ReplaceAll(text, []byte("$1"))) != defaults {
		t.Error("with every option uncommented it is not the defaults")
	}
}

func install(t *testing.T, tree, tmp string) {
	dest := filepath.Join(tmp, "dest")
	mine := filepath.Join(dest, "etc/ipamd/ipamd.toml")
	if err := os.MkdirAll(filepath.Dir(mine), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(mine, []byte("# mine\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	run(t, tree, "make", "-s", "install", "DESTDIR="+dest)
	if present, err := os.ReadFile(mine); err != nil || string(present) != "# mine\n" {
		t.Errorf("the configuration became %q, %v", present, err)
	}
	unit, err := os.ReadFile(filepath.Join(dest, "usr/local/lib/systemd/system/ipamd.service"))
	if err != nil || !bytes.Contains(unit, []byte("ExecStart=/usr/local/sbin/ipamd run\n")) {
		t.Errorf("%v: %s", err, unit)
	}
	run(t, tree, filepath.Join(dest, "usr/local/bin/ipamctl"), "--help")
}

// unpacked unpacks a further package that two builds made, which have to be the same.
func unpacked(t *testing.T, name, first, second string) (root string) {
	t.Helper()
	var bodies [][]byte
	var pkg string
	for _, tree := range []string{second, first} {
		found, err := filepath.Glob(filepath.Join(tree, "bin", name+"_*.deb"))
		if err != nil || len(found) != 1 {
			t.Fatalf("packages %q, %v", found, err)
		}
		body, err := os.ReadFile(found[0])
		if err != nil {
			t.Fatal(err)
		}
		bodies, pkg = append(bodies, body), found[0]
	}
	if !bytes.Equal(bodies[0], bodies[1]) {
		t.Error("two builds of the same source differ")
	}
	root = filepath.Join(t.TempDir(), "root")
	run(t, ".", "dpkg-deb", "-x", pkg, root)
	return root
}

// has wants files to be there with these modes.
func has(t *testing.T, root string, want map[string]os.FileMode) {
	t.Helper()
	for path, mode := range want {
		if info, err := os.Stat(filepath.Join(root, path)); err != nil || info.Mode().Perm() != mode {
			t.Errorf("%s: %v, %v", path, info, err)
		}
	}
}

// driver looks at the package of Docker's driver.
func driver(t *testing.T, first, second string) {
	const docs = "usr/share/doc/ipamd-docker/"
	has(t, unpacked(t, "ipamd-docker", first, second), map[string]os.FileMode{
		"usr/lib/systemd/system/ipamd-docker.service": 0o644, "usr/lib/systemd/system/ipamd-docker.socket": 0o644,
		docs + "DOCKER.md.gz": 0o644, docs + "copyright": 0o644, docs + "LICENSES.gz": 0o644, docs + "changelog.gz": 0o644,
	})
	if contents := run(t, ".", "dpkg-deb", "-c", deb(t, first)); strings.Contains(contents, "system/ipamd-docker") || strings.Contains(contents, "DOCKER.md") {
		t.Errorf("the daemon's package has it, too:\n%s", contents)
	}
}

// plugin looks at the package of the CNI plugin.
func plugin(t *testing.T, first, second string) {
	root := unpacked(t, "ipamd-cni", first, second)
	has(t, root, map[string]os.FileMode{
		"usr/lib/cni/ipamd": 0o755, "usr/share/doc/ipamd-cni/CNI.md.gz": 0o644, "usr/share/doc/ipamd-cni/copyright": 0o644,
		"usr/share/doc/ipamd-cni/LICENSES.gz": 0o644, "usr/share/doc/ipamd-cni/changelog.gz": 0o644,
		"usr/share/doc/ipamd-cni/examples/cni/10-sandboxes.conflist": 0o644, "usr/share/doc/ipamd-cni/examples/cni/10-sandboxes-alone.conflist": 0o644,
	})
	cmd := exec.Command(filepath.Join(root, "usr/lib/cni/ipamd"))
	cmd.Env = []string{"CNI_COMMAND=VERSION"}
	if out, err := cmd.Output(); err != nil || !bytes.Contains(out, []byte(`"1.1.0"`)) {
		t.Errorf("VERSION: %v, %s", err, out)
	}
	if contents := run(t, ".", "dpkg-deb", "-c", deb(t, first)); strings.Contains(contents, "cni") {
		t.Errorf("the daemon's package has it, too:\n%s", contents)
	}
}

// live installs on this system, with every write in a folder above it, which
// goes with the namespace that it is mounted in.
func live(t *testing.T, here, tmp, pkg string) {
	script := filepath.Join(here, "packaging/testdata/session.sh")
	world := filepath.Join(tmp, "world")
	if err := os.Mkdir(world, 0o700); err != nil {
		t.Fatal(err)
	}
	out := run(t, tmp, "unshare", "--mount", "--net", "--propagation", "private", "bash", script, pkg, world)
	for want, times := range map[string]int{
		"the lease book stays in /var/lib/ipamd":                 3, // a purge removes first
		"removing the lease book and its past in /var/lib/ipamd": 2,
		"/var/lib/ipamd is empty and stays: it is a mount point": 1,
		"ipamd: what is missing before the first address":        2, // an upgrade does not say it
	} {
		if strings.Count(out, want) != times {
			t.Errorf("it is not said %d times: %q\n%s", times, want, out)
		}
	}
}
