// Command ipamd-cni is ipamd for callers of CNI: the IPAM below a main plugin such as
// the reference bridge, a main plugin that plugs containers in itself, and beside another
// one what collects garbage. It is installed as `ipamd` in the folder of the plugins.
//
// It keeps nothing: whose an address is follows from the network's name, the container's
// id and the interface, so the same question finds the same lease. It talks to nothing
// but the daemon's socket. That a container is gone, as DEL and GC say, is a wish to
// release its lease and never a confirmation: the daemon confirms by the kernel.
package main

import (
	"fmt"
	"os"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/version"

	"github.com/ipamd/ipamd/internal/build"
)

func main() {
	e := skel.PluginMainFuncsWithError(skel.CNIFuncs{Add: add, Del: del, Check: check, GC: gc, Status: status},
		version.All, "CNI plugin ipamd "+build.Version)
	if e == nil {
		return
	}
	if err := e.Print(); err != nil {
		fmt.Fprintln(os.Stderr, "write the error:", err)
	}
	os.Exit(1)
}
