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

// SameLink reports whether two leases that record a link of one name record one
// link: that the one still is a port concerns the other, too.
func (p Plug) SameLink(o Plug) bool { return p.Index != 0 && p.Index == o.Index && p.Boot == o.Boot }

// SameNetns is [Plug.SameLink] of namespaces.
func (p Plug) SameNetns(o Plug) bool { return p.Inode != 0 && p.Inode == o.Inode && p.Boot == o.Boot }

// plug takes in what a binding names, before its names are recorded. What could not
// be looked up leaves what is known of the same name.
func (l *Lease) plug(n Binding) {
	if n.Plug.Boot != "" && n.Plug.Boot != l.Plug.Boot {
		l.Plug = Plug{Boot: n.Plug.Boot} // links and namespaces of before are gone
	}
	if n.HostInterface != "" && (n.HostInterface != l.HostInterface || n.Plug.Index != 0) {
		l.Plug.Index = n.Plug.Index
	}
	if n.Netns != "" && (n.Netns != l.Netns || n.Plug.Inode != 0) {
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
