package reconciler

import (
	"context"
	"errors"
	"maps"
	"net/netip"
	"testing"

	"github.com/ipamd/ipamd/census"
)

// What a reading beside the bridges finds counts, also where it could not read all, as at a start beside a
// namespace that does not answer. While readings fail an address that was there may be there yet; one that
// reads all says what is there.
func TestReadingsBesideTheBridgesThatFail(t *testing.T) {
	const a2, a3 = "10.8.64.2", "10.8.64.3"
	failed := errors.New("a namespace could not be read")
	y := plain(t)
	for _, reading := range []struct {
		name  string
		finds []string
		err   error
		want  []string // what counts as beside the bridges from then on
	}{
		{"the first one fails", []string{a2}, failed, []string{a2}},
		{"the next one fails, and finds another", []string{a3}, failed, []string{a2, a3}},
		{"one fails, and finds none", nil, failed, []string{a2, a3}},
		{"one reads all", []string{a3}, nil, []string{a3}},
		{"one reads all, and finds none", nil, nil, nil},
		{"one fails after it", nil, failed, nil},
	} {
		y.Beside = func(context.Context, census.Sought) (map[netip.Addr]string, error) {
			var at map[netip.Addr]string // nil where none is found
			for _, a := range reading.finds {
				if at == nil {
					at = make(map[netip.Addr]string)
				}
				at[netip.MustParseAddr(a)] = a + " is in a namespace off the bridges"
			}
			return at, reading.err
		}
		y.lookBeside(ctx, nil)
		want := make(map[netip.Addr]string)
		for _, a := range reading.want {
			want[netip.MustParseAddr(a)] = a + " is in a namespace off the bridges"
		}
		if !maps.Equal(y.beside, want) {
			t.Errorf("%s: what counts is %v, want %v", reading.name, y.beside, want)
		}
	}
}

// A daemon that starts while a namespace cannot be read makes its first pass, and keeps what was found in the others.
func TestTheFirstReadingBesideTheBridgesFails(t *testing.T) {
	y := plain(t)
	y.Beside = func(context.Context, census.Sought) (map[netip.Addr]string, error) {
		return map[netip.Addr]string{two: "it is in the namespace of container c1"}, errors.New("a namespace could not be read")
	}
	y.pass("quarantine 10.8.64.2 done")
	y.holds("10.8.64.2 quarantined")
}
