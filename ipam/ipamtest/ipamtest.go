// Package ipamtest makes leases for tests of rooms that have no book.
package ipamtest

import (
	"time"

	"github.com/ipamd/ipamd/ipam"
)

// Bound makes a bound lease of one boot, so many seconds after it.
func Bound(id, sandbox, uid string, at int, change ...func(*ipam.Lease)) *ipam.Lease {
	l := &ipam.Lease{ID: id, Rev: 7, Sandbox: sandbox, UID: uid, PoolUID: "p", Interface: "eth0", State: ipam.Bound,
		Created: ipam.Stamp{Wall: time.Unix(int64(at), 0), BootID: "one", Boottime: time.Duration(at) * time.Second}}
	for _, c := range change {
		c(l)
	}
	return l
}

// Records has a lease record containers of the namespace default.
func Records(ids ...string) func(*ipam.Lease) {
	return func(l *ipam.Lease) {
		for _, id := range ids {
			l.Containers = append(l.Containers, ipam.Container{Namespace: "default", ID: id})
		}
	}
}
