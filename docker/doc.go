// Package docker is Docker's remote IPAM driver in front of ipamd's socket: what libnetwork
// asks over a plugin's socket becomes calls of [client.Client], and nothing is kept here.
// So the driver may end and start again at any time.
//
// Libnetwork names addresses by a pool and an address, ipamd by lease ids. A lease that is
// given to a container has the label [Label], and a release of an address only ever ends a
// lease that has it. That Docker releases an address is a wish: ipamd frees it once the
// container's port has gone.
//
// The protocol is that of libnetwork's docs/ipam.md, as Docker 20.10 speaks it.
package docker
