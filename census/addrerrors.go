package census

import (
	"maps"
	"net/netip"
	"slices"
	"strings"
)

// An AddrErrors is the error of a call about several addresses that was in vain for some of them, as where
// they are on several bridges and one of those cannot be read.
type AddrErrors struct{ of map[netip.Addr]error }

// NewAddrErrors returns an error of those addresses, which is nil where there is none.
func NewAddrErrors(of map[netip.Addr]error) error {
	if len(of) == 0 {
		return nil
	}
	return &AddrErrors{of}
}

// ErrorAbout returns what an error means for one address: what an AddrErrors has about it, nil too, and any
// other error as it is.
func ErrorAbout(addr netip.Addr, err error) error {
	if e, is := err.(*AddrErrors); is { //nolint:errorlint // one that is wrapped, or joined with others, is about all
		return e.of[addr]
	}
	return err
}

// Error says each cause once.
func (e *AddrErrors) Error() string {
	var said []string
	for _, err := range e.Unwrap() {
		if s := err.Error(); !slices.Contains(said, s) {
			said = append(said, s)
		}
	}
	return strings.Join(said, "\n")
}

// Unwrap returns the causes in the order of their addresses.
func (e *AddrErrors) Unwrap() []error {
	out := make([]error, 0, len(e.of))
	for _, a := range slices.SortedFunc(maps.Keys(e.of), netip.Addr.Compare) {
		out = append(out, e.of[a])
	}
	return out
}
