package server

import (
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/ipam"
)

// field is the error of one argument that is wrong. This package finds a wrong shape;
// netdb and the allocator find a wrong name or number.
func field(name, format string, args ...any) error {
	return &ipam.FieldError{Field: name, Reason: fmt.Sprintf(format, args...)}
}

// address takes one bare address.
func address(name, text string) (netip.Addr, error) {
	a, err := netip.ParseAddr(text)
	if err != nil {
		if p, err := netip.ParsePrefix(text); err == nil {
			return a, field(name, "%q is a prefix; write %s", text, p.Addr())
		}
		return a, field(name, "%q is not an IP address", text)
	}
	switch {
	case a.Zone() != "":
		return a, field(name, "%q has a zone; write %s", text, a.WithZone(""))
	case a.Is4In6():
		return a, field(name, "%q is IPv4 inside IPv6; write %s", text, a.Unmap())
	}
	return a, nil
}

// duration takes a Go duration; "" is 0.
func duration(name string, text api.Duration) (time.Duration, error) {
	if text == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(string(text))
	switch {
	case err != nil:
		return 0, field(name, "%q is not a duration such as 10m or 1h30m", text)
	case d < 0:
		return 0, field(name, "%q is negative", text)
	}
	return d, nil
}

// query takes the parameters that the route knows, each at most once.
func (c *call) query() (url.Values, error) {
	if c.r.URL.RawQuery == "" {
		return nil, nil
	}
	q, err := url.ParseQuery(c.r.URL.RawQuery)
	if err != nil {
		return nil, field("query", "is not well formed")
	}
	for name, values := range q {
		switch {
		case !slices.Contains(c.end.Query, name):
			return nil, field(strings.ToValidUTF8(name, "?"), "is not known%s", meant(name, c.end.Query))
		case len(values) > 1:
			return nil, field(name, "is given %d times", len(values))
		case values[0] == "":
			return nil, field(name, "is empty; leave it out")
		case !utf8.ValidString(values[0]):
			return nil, field(name, "is not UTF-8")
		}
	}
	return q, nil
}

// state takes a state that a row can have; "" is any.
func state(name, text string) (ipam.State, error) {
	s := ipam.State(text)
	if text == "" || slices.Contains(ipam.States(), s) {
		return s, nil
	}
	var known []string
	for _, k := range ipam.States() {
		known = append(known, string(k))
	}
	return "", field(name, "%q is not one of %s", text, strings.Join(known, ", "))
}

// moment takes a time of RFC 3339; "" is the beginning.
func moment(name, text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return t, field(name, "%q is not a time such as 2026-01-31T14:05:00Z", text)
	}
	return t, nil
}

// count takes a whole number from 1 to most; "" is 0.
func count(name, text string, most int) (int, error) {
	if text == "" {
		return 0, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > most {
		return 0, field(name, "%q is not a number from 1 to %d", text, most)
	}
	return n, nil
}
