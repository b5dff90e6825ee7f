package ipam

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"

	"github.com/ipamd/ipamd/internal/ranges"
)

// RangeOf is an address, or with bits above 0 the prefix that begins there, as a range.
func RangeOf(a netip.Addr, bits int) Range {
	if bits == 0 {
		return ranges.Between(a, a)
	}
	return ranges.Of(netip.PrefixFrom(a, bits))
}

// TextOf writes an address, or with bits above 0 the prefix that begins there.
func TextOf(a netip.Addr, bits int) string {
	if !a.IsValid() || bits == 0 {
		return AddrText(a)
	}
	return netip.PrefixFrom(a, bits).String()
}

// ParseText reads what TextOf writes.
func ParseText(s string) (a netip.Addr, bits int, err error) {
	if !strings.Contains(s, "/") {
		a, err = netip.ParseAddr(s)
		return a, 0, err
	}
	p, err := netip.ParsePrefix(s)
	if err == nil && (p != p.Masked() || p.IsSingleIP() || p.Bits() == 0) {
		err = fmt.Errorf("%q is no delegated prefix", s)
	}
	return p.Addr(), p.Bits(), err
}

// AddrText is a as text, and "" for the zero address.
func AddrText(a netip.Addr) string {
	if !a.IsValid() {
		return ""
	}
	return a.String()
}

// A Place says where an address lies.
type Place struct {
	Pool   *Pool  // nil: in no pool
	Usable bool   // could be handed out at all
	Note   string // why not
	Kept   string // the sandbox that the address is kept for; "" for none

	Withheld *Withheld // since its pool was removed, and by no pool taken over
}

// A Withheld address outlives the pool that had it. What a removed pool's row knew is not
// lost with the row: an address that cooled has to go on cooling until its time is over, and one
// that was quarantined, or held when its pool was removed by force, may be on the wire
// for as long as its sandbox lives. No row can say that, because a row belongs to a pool;
// a pool of the same prefix that is made a moment later would give the address at once.
// The pool that comes to contain one takes it over as a row of its own.
type Withheld struct {
	Addr      netip.Addr
	PrefixLen int    // as of a [Lease]
	PoolUID   string // of the pool that was removed
	Pool      string
	LeaseID   string // of the row that went
	State     State  // Cooling or Quarantined
	Sandbox   string
	UID       string
	Interface string
	Rev       int64 // of the change that made it cool; of the one that took the row, if it is quarantined
	Since     Stamp // when it entered its state
	Evidence  json.RawMessage
	Hold      string // an operator's words

	// Where it was in use: only a witness of that bridge sees it there. Bridge is "" of what was
	// withheld before it was recorded.
	Bridge        string
	HostInterface string
	Netns         string
	Plug          Plug
}

// Covers reports whether an address is withheld with this one.
func (w *Withheld) Covers(a netip.Addr) bool { return RangeOf(w.Addr, w.PrefixLen).Contains(a) }
