package census

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"
)

// What an error says of an address: what it has about it, and everything that is not about some only.
func TestErrorAbout(t *testing.T) {
	a, b, c := netip.MustParseAddr("10.8.64.2"), netip.MustParseAddr("10.8.64.3"), netip.MustParseAddr("10.8.64.4")
	broken := errors.New("br8 cannot be read")
	some := NewAddrErrors(map[netip.Addr]error{b: broken, c: broken})
	if some.Error() != "br8 cannot be read" || !errors.Is(some, broken) {
		t.Errorf("%v", some)
	}
	for name, tt := range map[string]struct {
		err  error
		a, b bool
	}{
		"none":                 {NewAddrErrors(nil), false, false},
		"of some":              {some, false, true},
		"of all":               {broken, true, true},
		"wrapped":              {fmt.Errorf("settle: %w", some), true, true},
		"joined with another":  {errors.Join(some, errors.New("it was closed")), true, true},
		"no error of a bridge": {nil, false, false},
	} {
		if (ErrorAbout(a, tt.err) != nil) != tt.a || (ErrorAbout(b, tt.err) != nil) != tt.b {
			t.Errorf("%s: %v, %v", name, ErrorAbout(a, tt.err), ErrorAbout(b, tt.err))
		}
	}
}
