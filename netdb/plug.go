package netdb

import (
	"encoding/json"
	"fmt"
)

// A Plug tells the plumbing that a lease records from later plumbing of the same
// names: names are used again, and within one boot of the machine these are not.
type Plug struct {
	Boot  string `json:"boot"`            // the kernel's id of the boot
	Index int    `json:"index,omitempty"` // of the link HostInterface; 0: not known
	Inode uint64 `json:"inode,omitempty"` // of the namespace Netns; 0: not known
}

// OtherLink reports whether two leases that record a link of one name are known to
// record two links. While either is not known they may be one, and that it is a port
// concerns both.
func (p Plug) OtherLink(o Plug) bool {
	return p.Index != 0 && o.Index != 0 && (p.Index != o.Index || p.Boot != o.Boot)
}

// OtherNetns is [Plug.OtherLink] of namespaces.
func (p Plug) OtherNetns(o Plug) bool {
	return p.Inode != 0 && o.Inode != 0 && (p.Inode != o.Inode || p.Boot != o.Boot)
}

// plug takes in what a binding names, before its names are recorded. What could not
// be looked up is not known: a name that is bound again may be of a later link.
func (l *Lease) plug(n Binding) {
	if n.Plug.Boot != "" && n.Plug.Boot != l.Plug.Boot {
		l.Plug = Plug{Boot: n.Plug.Boot} // links and namespaces of before are gone
	}
	if n.HostInterface != "" {
		l.Plug.Index = n.Plug.Index
	}
	if n.Netns != "" {
		l.Plug.Inode = n.Plug.Inode
	}
	if l.Plug.Index == 0 && l.Plug.Inode == 0 {
		l.Plug = Plug{}
	}
}

func (p Plug) text() string {
	if p == (Plug{}) {
		return ""
	}
	return encode(p, 1)
}

func plugOf(text string) (p Plug, err error) {
	if text == "" {
		return p, nil
	}
	if err := json.Unmarshal([]byte(text), &p); err != nil {
		return p, fmt.Errorf("plug: %w", err)
	}
	return p, nil
}
