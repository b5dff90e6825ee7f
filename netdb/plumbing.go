package netdb

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
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
	MTU       int      `json:"mtu,omitempty"`
	DNS       []string `json:"dns,omitempty"`    // in the order that they are asked
	Routes    []string `json:"routes,omitempty"` // sorted: their order means nothing
	Interface string   `json:"interface"`
	Profile
}

// A Profile is the part of a plumbing that the daemon's configuration decides for all pools.
type Profile struct {
	MAC     string `json:"mac,omitempty"`     // how the MAC of the sandbox's end is chosen; "": by the kernel
	Enforce string `json:"enforce,omitempty"` // mode of the rules
	Wake    string `json:"wake,omitempty"`    // how traffic wakes
}

// Plumbing is how a slot of the pool is made now.
func (s *PoolSpec) Plumbing(iface string, p Profile) Plumbing {
	out := Plumbing{Bridge: s.Bridge, Prefix: s.Prefix.String(), Gateway: AddrText(s.Gateway), MTU: s.MTU, Interface: iface, Profile: p}
	for _, a := range s.DNS {
		out.DNS = append(out.DNS, a.String())
	}
	for _, r := range s.Routes {
		out.Routes = append(out.Routes, r.Destination.String()+" via "+r.Via.String())
	}
	slices.Sort(out.Routes)
	return out
}

// hashAlgorithm is the name before a hash. Another way to compute hashes has another name.
const hashAlgorithm = "sha256"

// Hash identifies a plumbing, as in sha256:9f86….
func (p Plumbing) Hash() string {
	sum := sha256.Sum256([]byte(p.text()))
	return hashAlgorithm + ":" + hex.EncodeToString(sum[:])
}

func (p Plumbing) text() string {
	b, err := json.Marshal(p)
	if err != nil {
		panic(err) // numbers and texts always marshal
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

// differs says whether a slot that was made by a recorded plumbing is not as this one, of hash
// is, wants it. The hash decides where both are of one algorithm; else the plumbing itself, so that
// another build's hash alone makes no slot stale. An error means that it cannot be known:
// then the slot is neither given nor taken down for it.
func (p Plumbing) differs(is, hash, spec string) (bool, error) {
	if algorithm, _, _ := strings.Cut(hash, ":"); algorithm == hashAlgorithm {
		return hash != is, nil
	}
	var was Plumbing
	d := json.NewDecoder(strings.NewReader(spec))
	d.DisallowUnknownFields()
	if err := d.Decode(&was); err != nil || was.Bridge == "" || was.Interface == "" {
		return false, fmt.Errorf("the plumbing behind %.40q cannot be read: %w", hash, errors.Join(err, ErrState))
	}
	return !reflect.DeepEqual(was, p), nil
}
