//go:build man

package main

import (
	"fmt"
	"os"
	"time"

	"github.com/ipamd/ipamd/internal/build"
	"github.com/ipamd/ipamd/internal/manual"
)

const (
	environment = `  IPAMD_SOCKET       ipamd's socket, where --socket is not given
  NO_COLOR           not empty: no colour
  TERM               dumb: no colour, and nothing that moves
  COLUMNS            the width of a page, where it is not the terminal's
  LC_ALL, LC_CTYPE, LANG
                     the first that is set says whether UTF-8 is drawn`
	files = `  /run/ipamd/ipamd.sock
                     ipamd's socket; its group, ipamd, may read
  /etc/ipamd/ipamd.toml
                     ipamd's configuration, ipamd.toml(5)`
)

// With the tag man this is another program: it writes ipamctl's manual pages
// and completions.
func main() {
	dir, volume, err := manual.FromArgs(os.Args[1:], "1")
	if err == nil {
		c := newCtl(streams{out: os.Stdout, err: os.Stderr, getenv: func(string) string { return "" }, now: time.Now}, nil, build.Info{})
		volume.More = []manual.Part{
			{Title: "ENVIRONMENT", Text: environment},
			{Title: "FILES", Text: files},
			{Title: "EXIT STATUS", Text: exitCodesTopic().Long},
		}
		volume.Also = []string{"ipamctl-exit-codes(1)", "ipamd(8)"}
		err = volume.Write(c.root, dir)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "manual of ipamctl: %v\n", err)
		os.Exit(1)
	}
}
