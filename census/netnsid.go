package census

import (
	"strconv"
	"strings"
)

// A NetnsID names the network namespace of a sighting by its nsid, as the namespace of the bridge knows it. Two
// of them are compared by [NetnsID.Is]; the zero value is one that is not known.
type NetnsID struct {
	name  string // under /run/netns
	id    int32
	known bool
}

// NewNetnsID is the namespace of an nsid, which has a name under /run/netns; "": none is known.
func NewNetnsID(nsid int, name string) NetnsID {
	return NetnsID{name: name, id: int32(nsid), known: true}
}

// Is reports whether both are one namespace, whatever their names.
func (n NetnsID) Is(o NetnsID) bool { return n.known && o.known && n.id == o.id }

// Name is the namespace's name under /run/netns; "": none is known.
func (n NetnsID) Name() string { return n.name }

// String is "nsid:7", with the name where one is known: "nsid:7 (blue)". It is "" of the zero value.
func (n NetnsID) String() string {
	switch {
	case !n.known:
		return ""
	case n.name == "":
		return nsidPrefix + strconv.Itoa(int(n.id))
	}
	return nsidPrefix + strconv.Itoa(int(n.id)) + " (" + n.name + ")"
}

const nsidPrefix = "nsid:"

// MarshalText is [NetnsID.String]: the text that the book keeps in evidence, and the socket shows.
func (n NetnsID) MarshalText() ([]byte, error) { return []byte(n.String()), nil }

// UnmarshalText reads what MarshalText wrote. Any other text was written by no ipamd, and is a namespace
// that is not known: evidence says who and where beside it, which is read all the same.
func (n *NetnsID) UnmarshalText(text []byte) error {
	*n = NetnsID{}
	id, name, named := strings.Cut(strings.TrimPrefix(string(text), nsidPrefix), " (")
	nsid, err := strconv.ParseInt(id, 10, 32)
	is := NewNetnsID(int(nsid), strings.TrimSuffix(name, ")"))
	if err == nil && named == (is.name != "") && is.String() == string(text) {
		*n = is
	}
	return nil
}
