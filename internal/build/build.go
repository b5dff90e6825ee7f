// Package build says which version of ipamd a program was built from.
package build

import (
	"runtime"
	"runtime/debug"
)

// Version is that of the tree: of its release, or with "-dev" at its end that of the
// release to come. A package is named after it (scripts/version).
const Version = "0.2.0-dev"

// An Info is what a program knows of how it was built.
type Info struct {
	Version string `json:"version"`
	Commit  string `json:"commit"` // empty outside a checkout; ends in "-dirty" with changes that were not committed
	Go      string `json:"go"`
}

// This reads what the linker recorded of the running program.
func This() Info {
	b := Info{Version: Version, Go: runtime.Version()}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	dirty := false
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Commit = s.Value
		case "vcs.modified":
			dirty = s.Value == "true"
		}
	}
	if dirty && b.Commit != "" {
		b.Commit += "-dirty"
	}
	return b
}
