package plumb

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// A Spec describes a port in whole: nothing else decides what is made.
type Spec struct {
	Owner string // whose port it is: any text that no other port has, such as a lease's id

	Bridge string // by name, in the caller's network namespace
	Host   string // the bridge's end; at most 15 bytes
	Netns  string // path of the sandbox's network namespace, which is there
	Guest  string // the sandbox's end: "eth0"
	// Tap is for a virtual machine, in place of a pair: a tap by the name Host, which the machine's
	// monitor opens, and the other end is in the machine. Netns is "", and Guest does not matter;
	// addresses, routes and MAC are the machine's own to take.
	Tap bool

	MTU       int              // bytes; 0: the kernel's default
	MAC       net.HardwareAddr // of the sandbox's end; nil: the kernel draws one
	Addresses []netip.Prefix   // with the length of their network: 10.8.64.2/24
	Routes    []Route
}

// A Route leaves by the sandbox's end.
type Route struct {
	To  netip.Prefix
	Via netip.Addr // invalid: what To names is on the link itself
}

// HostMAC is the MAC of the bridge's end of an owner's port. It begins with fe, as
// a bridge without a MAC of its own takes its ports' lowest.
func HostMAC(owner string) net.HardwareAddr {
	sum := sha256.Sum256([]byte("ipamd port of " + owner))
	return append(net.HardwareAddr{0xfe}, sum[:5]...)
}

// HostName is a name for the bridge's end that no other owner's port has.
func HostName(owner string) string {
	sum := sha256.Sum256([]byte(owner))
	return "sb" + hex.EncodeToString(sum[:6])
}

// AddressMAC is a MAC made from an address, so that who has the address next has
// the MAC too, and no neighbour has to learn another.
func AddressMAC(a netip.Addr) net.HardwareAddr {
	if a.Is4() {
		b := a.As4()
		return append(net.HardwareAddr{0x0a, 0x58}, b[:]...)
	}
	sum := sha256.Sum256(a.AsSlice())
	return append(net.HardwareAddr{0x0a, 0x59}, sum[:4]...)
}

// Why a spec or what it names is refused, in a [FieldError].
var (
	ErrInvalid = errors.New("is not valid")
	// ErrTaken is of what another owner has: it is not touched.
	ErrTaken = errors.New("belongs to another")
	// ErrMissing is of what has to be there and is not.
	ErrMissing = errors.New("is not there")
)

// A FieldError is an error that one field of a spec causes.
type FieldError struct {
	Field string // owner, bridge, host, netns, guest, mtu, mac, addresses, routes
	Value string
	Why   string // what it should be, or is instead; may be ""
	Err   error  // ErrInvalid, ErrTaken, ErrMissing
}

func (e *FieldError) Error() string {
	text := fmt.Sprintf("%s %q %v", e.Field, e.Value, e.Err)
	if e.Why != "" {
		text += ": " + e.Why
	}
	return text
}

func (e *FieldError) Unwrap() error { return e.Err }

func invalid(field, value, why string) error {
	return &FieldError{Field: field, Value: value, Why: why, Err: ErrInvalid}
}

// Validate returns the first field that cannot be right, whatever the kernel has,
// as a [FieldError].
func (s *Spec) Validate() error {
	if err := s.validEnds(); err != nil {
		return err
	}
	if err := linkName("bridge", s.Bridge); err != nil {
		return err
	}
	if err := s.validAddresses(); err != nil {
		return err
	}
	return s.validRoutes()
}

// validEnds is Validate of what is no bridge, address or route.
func (s *Spec) validEnds() error {
	if s.Owner == "" {
		return invalid("owner", "", "whose port is it?")
	}
	for _, n := range []struct{ field, name string }{{"host", s.Host}, {"guest", s.Guest}} {
		if err := linkName(n.field, n.name); err != nil && (n.field != "guest" || !s.Tap) {
			return err
		}
	}
	switch {
	case s.Tap && s.Netns != "":
		return invalid("netns", s.Netns, "a tap is in none: its machine's monitor opens it on the host")
	case !s.Tap && !filepath.IsAbs(s.Netns):
		return invalid("netns", s.Netns, "it is the path of a network namespace, from /")
	}
	if s.MAC != nil && (len(s.MAC) != 6 || s.MAC[0]&1 != 0 || slices.Equal(s.MAC, make(net.HardwareAddr, 6))) {
		return invalid("mac", s.MAC.String(), "it is six bytes, and no group's")
	}
	return nil
}

// linkName refuses a name that no link can have, or that means another thing.
func linkName(field, name string) error {
	switch {
	case name == "" || len(name) >= unix.IFNAMSIZ:
		return invalid(field, name, fmt.Sprintf("a link's name has 1 to %d bytes", unix.IFNAMSIZ-1))
	case name == "lo" || name == "all" || name == "default" || name == "." || name == "..":
		return invalid(field, name, "the name has a meaning already")
	case strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r == '/' || r == ':' || r == '%' || r > '~' }):
		return invalid(field, name, "it has a character that no link's name should have")
	}
	return nil
}

func (s *Spec) validAddresses() error {
	if len(s.Addresses) == 0 {
		return invalid("addresses", "", "there is none")
	}
	seen := make(map[netip.Addr]bool)
	for _, p := range s.Addresses {
		a := p.Addr()
		switch {
		case !p.IsValid() || a.Is4In6() || a.Zone() != "" || a.IsUnspecified() || a.IsMulticast() || a.IsLoopback():
			return invalid("addresses", p.String(), "it is no sandbox's")
		case seen[a]:
			return invalid("addresses", p.String(), "it is there twice")
		case a.Is6() && s.MTU != 0 && s.MTU < 1280:
			return invalid("mtu", fmt.Sprint(s.MTU), "IPv6 needs 1280")
		}
		seen[a] = true
	}
	if s.MTU != 0 && (s.MTU < 68 || s.MTU > 65535) {
		return invalid("mtu", fmt.Sprint(s.MTU), "68 to 65535 bytes")
	}
	return nil
}

func (s *Spec) validRoutes() error {
	for _, r := range s.Routes {
		text := r.String()
		switch {
		case !r.To.IsValid() || r.To != r.To.Masked() || r.To.Addr().Is4In6():
			return invalid("routes", text, "the destination is no network")
		case r.Via.IsValid() && (r.Via.Is4() != r.To.Addr().Is4() || r.Via.Zone() != ""):
			return invalid("routes", text, "destination and gateway are of two families")
		case !slices.ContainsFunc(s.Addresses, func(p netip.Prefix) bool { return p.Addr().Is4() == r.To.Addr().Is4() }):
			return invalid("routes", text, "there is no address of its family")
		}
	}
	return nil
}

func (r Route) String() string {
	if !r.Via.IsValid() {
		return r.To.String()
	}
	return r.To.String() + " via " + r.Via.String()
}
