//go:build man

package main

import (
	"fmt"
	"os"
	"time"

	"github.com/ipamd/ipamd/internal/manual"
)

// With the tag man this is another program: it writes ipamctl's manual pages
// and completions.
func main() {
	dir, volume, err := manual.FromArgs(os.Args[1:], "1")
	if err == nil {
		c := newCtl(streams{out: os.Stdout, err: os.Stderr, getenv: func(string) string { return "" }, now: time.Now}, nil, build{})
		volume.Also = []string{"ipamctl-exit-codes(1)", "ipamd(8)"}
		err = volume.Write(c.root, dir)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "manual of ipamctl: %v\n", err)
		os.Exit(1)
	}
}
