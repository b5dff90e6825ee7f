package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// A user that can write to the configuration decides which containers are ended, and who
// may call. A file that is writable for all is refused; other writers are logged at the
// start.

// errExposed means that every user may write to a configuration, or put another there.
var errExposed = errors.New("any user may write to it")

// notEverybodys refuses an open configuration that every user may write to.
func notEverybodys(path string, is fs.FileInfo) error {
	if is.Mode().Perm()&0o002 != 0 {
		return fmt.Errorf("%w (mode %04o); chmod o-w", errExposed, is.Mode().Perm())
	}
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return err
	}
	dir, err := os.Stat(filepath.Dir(real))
	if err != nil {
		return err
	}
	// In a folder like /tmp only the owner of a file can put another in its place.
	if dir.Mode().Perm()&0o002 != 0 && dir.Mode()&fs.ModeSticky == 0 {
		return fmt.Errorf("%w: its folder, %s, has mode %04o; chmod o-w", errExposed, filepath.Dir(real), dir.Mode().Perm())
	}
	return nil
}

// OtherWriters names who may write to a configuration besides root and the user that this
// process runs as, "" when there is none, or it cannot be read.
func OtherWriters(path string) string {
	var found []string
	for _, p := range []string{path, filepath.Dir(path)} {
		is, err := os.Stat(p)
		if err != nil {
			continue
		}
		st := is.Sys().(*syscall.Stat_t)
		if st.Uid != 0 && int(st.Uid) != os.Geteuid() {
			found = append(found, fmt.Sprintf("%s belongs to user %d", p, st.Uid))
		}
		if is.Mode().Perm()&0o020 != 0 && is.Mode()&fs.ModeSticky == 0 {
			found = append(found, fmt.Sprintf("group %d may write to %s", st.Gid, p))
		}
	}
	return strings.Join(found, ", ")
}
