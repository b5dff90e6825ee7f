package plumb

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/ipamd/ipamd/internal/nsthread"
)

// ErrFamilyOff is of a namespace in which a family is switched off that the port has an address of.
var ErrFamilyOff = errors.New("has a family of addresses switched off")

// Fits reports why [Make] would refuse a port before it changes anything, for a caller that asks for
// its addresses only then: names and a namespace that cannot be, or that another has, and a MAC that
// is none. Bridge, addresses and routes of the spec may be missing. noIPv6 is why the port can have
// no address of IPv6, an [ErrFamilyOff]. Nothing is changed, and what was seen may change.
func Fits(ctx context.Context, s Spec) (noIPv6, err error) {
	var w *work
	if err = s.validEnds(); err == nil {
		w, err = openEnds(ctx, &s)
	}
	if err == nil {
		defer w.close()
		if err = w.ends(); err == nil {
			noIPv6 = w.hasIPv6()
		}
	}
	if err != nil {
		return nil, fmt.Errorf("make port %s: %w", s.Host, err)
	}
	return noIPv6, nil
}

// hasIPv6 refuses a namespace in which the sandbox's end could have no address of IPv6. One that is
// not there yet begins with the default. Where that cannot be read the kernel says it later.
func (w *work) hasIPv6() error {
	return nsthread.In(int(w.ns), func() error {
		for _, link := range []string{w.spec.Guest, "default"} {
			off, err := os.ReadFile("/proc/sys/net/ipv6/conf/" + link + "/disable_ipv6")
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err == nil && strings.TrimSpace(string(off)) != "0" {
				return &FieldError{Field: "netns", Value: w.spec.Netns, Err: ErrFamilyOff,
					Why: "IPv6, by net.ipv6.conf." + link + ".disable_ipv6: switch it on, or ask for IPv4 alone"}
			}
			break
		}
		return nil
	})
}
