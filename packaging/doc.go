// Package packaging is a test and nothing else: it builds the Debian package
// twice, from two copies of the tree, compares them, and installs, upgrades,
// removes and purges the package on a throw-away copy of this system.
//
// What the package is made of: nfpm.yaml, the maintainer scripts beside it,
// and scripts/install, which lists the files. The same story under a running
// systemd is in the tests of the units.
package packaging
