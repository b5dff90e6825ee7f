package ipam

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"
)

// A Plumbing is all that decides how a warm slot of a pool is made, and nothing else: what
// is changed here makes the slots stale that are ready. It is stored as JSON beside its hash.
type Plumbing struct {
	Bridge    string   `json:"bridge"`
	Prefix    string   `json:"prefix"`
	Gateway   string   `json:"gateway,omitempty"`
	MTU       int      `json:"mtu,omitempty"`    // the pool's, or else the bridge's; 0: that was not known, or not recorded
	DNS       []string `json:"dns,omitempty"`    // in the order that they are asked
	Routes    []string `json:"routes,omitempty"` // sorted: their order means nothing
	Interface string   `json:"interface"`
	Profile
}

// without is the plumbing without its MTU.
func (p Plumbing) without() Plumbing {
	p.MTU = 0
	return p
}

// A Profile is the part of a plumbing that no pool says: the daemon's configuration, which is one
// for all pools, and how the bridge of the pool is.
type Profile struct {
	MAC     string `json:"mac,omitempty"`     // how the MAC of the sandbox's end is chosen; "": by the kernel
	Enforce string `json:"enforce,omitempty"` // mode of the rules
	Wake    string `json:"wake,omitempty"`    // how traffic wakes
	// BridgeMTU is what the ports of a pool have that says none; 0: it is not known just now. It
	// is the MTU of the plumbing then, and recorded as that.
	BridgeMTU int `json:"-"`
}

// Plumbing is how a slot of the pool is made now.
func (s *PoolSpec) Plumbing(iface string, p Profile) Plumbing {
	out := Plumbing{Bridge: s.Bridge, Prefix: s.Prefix.String(), Gateway: AddrText(s.Gateway), MTU: cmp.Or(s.MTU, p.BridgeMTU), Interface: iface, Profile: p}
	out.BridgeMTU = 0
	for _, a := range s.DNS {
		out.DNS = append(out.DNS, a.String())
	}
	for _, r := range s.Routes {
		out.Routes = append(out.Routes, r.Destination.String()+routeVia+r.Via.String())
	}
	slices.Sort(out.Routes)
	return out
}

// routeVia is between the two parts of a route as a plumbing records it.
const routeVia = " via "

// PoolSpec is what a plumbing records of the pool. The MTU may be the bridge's, and the routes are in the
// order of their texts. What cannot be read of one that another build wrote is the zero value.
func (p Plumbing) PoolSpec() PoolSpec {
	out := PoolSpec{Bridge: p.Bridge, MTU: p.MTU}
	out.Prefix, _ = netip.ParsePrefix(p.Prefix)
	out.Gateway, _ = netip.ParseAddr(p.Gateway) // "" is none
	for _, text := range p.DNS {
		a, _ := netip.ParseAddr(text)
		out.DNS = append(out.DNS, a)
	}
	for _, text := range p.Routes {
		to, via, _ := strings.Cut(text, routeVia)
		var r Route
		r.Destination, _ = netip.ParsePrefix(to)
		r.Via, _ = netip.ParseAddr(via)
		out.Routes = append(out.Routes, r)
	}
	return out
}

// hashAlgorithm is the name before a hash. Another way to compute hashes has another name.
const hashAlgorithm = "sha256"

// Hash identifies a plumbing, as in sha256:9f86….
func (p Plumbing) Hash() string {
	sum := sha256.Sum256([]byte(p.Text()))
	return hashAlgorithm + ":" + hex.EncodeToString(sum[:])
}

// Text is the plumbing as JSON: what is hashed, and stored with a slot.
func (p Plumbing) Text() string {
	b, err := json.Marshal(p)
	if err != nil {
		panic(err) // texts and numbers always marshal
	}
	return string(b)
}

// Plumbing is what the slot was made by.
func (s *Slot) Plumbing() (p Plumbing, err error) {
	if err = json.Unmarshal([]byte(s.Spec), &p); err != nil {
		err = fmt.Errorf("read the plumbing of slot %.40q: %w", s.ID, err)
	}
	return p, err
}

// A wish is how slots of a pool are to be made, for many comparisons with how one was.
type wish struct {
	Plumbing
	hash   string
	silent string // hash of the same without an MTU, where that is the bridge's; else ""
}

// differs says whether a slot that was made by a recorded plumbing, of hash, is not as is wished.
// The hash decides where both are of one algorithm; else the plumbing itself, so that
// another build's hash alone makes no slot stale. A record without an MTU says nothing of the
// bridge's, and is not stale for it: the look into the namespace shows it. An error means that it
// cannot be known: then the slot is neither given nor taken down for it.
func (w wish) differs(hash, spec string) (bool, error) {
	if hash == w.hash || hash == w.silent {
		return false, nil
	}
	algorithm, _, _ := strings.Cut(hash, ":")
	same, known := algorithm == hashAlgorithm, w.silent == "" || w.MTU != 0
	if same && known {
		return true, nil
	}
	var was Plumbing
	d := json.NewDecoder(strings.NewReader(spec))
	d.DisallowUnknownFields()
	err := d.Decode(&was)
	switch want := w.Plumbing; {
	case err != nil || was.Bridge == "" || was.Interface == "":
		if same {
			return true, nil
		}
		return false, fmt.Errorf("the plumbing behind %.40q cannot be read: %w", hash, errors.Join(err, ErrState))
	case !known && was.MTU != 0 && reflect.DeepEqual(was.without(), want):
		return false, fmt.Errorf("the MTU of bridge %s is not known just now: %w", w.Bridge, ErrState)
	case w.silent != "" && was.MTU == 0:
		return same || !reflect.DeepEqual(was, want.without()), nil
	default:
		return same || !reflect.DeepEqual(was, want), nil
	}
}

func (s *PoolSpec) wish(iface string, p Profile) wish {
	w := wish{Plumbing: s.Plumbing(iface, p)}
	w.hash = w.Hash()
	if s.MTU == 0 {
		w.silent = w.without().Hash()
	}
	return w
}

// Staleness returns [Slot.Stale] for many slots of a pool as it is now: how they would be made
// is worked out once, and not for each.
func (s *PoolSpec) Staleness(p Profile) func(slot *Slot, iface string) (bool, error) {
	known := make(map[string]wish)
	return func(slot *Slot, iface string) (bool, error) {
		want, ok := known[iface]
		if !ok {
			want = s.wish(iface, p)
			known[iface] = want
		}
		return want.differs(slot.SpecHash, slot.Spec)
	}
}
