package census

import (
	"strconv"
	"strings"
)

// A Space is the network namespace of a sighting, as the namespace of the bridge knows it. Two
// of them are compared by [Space.Is]; the zero value is one that is not known.
type Space struct {
	name  string // under /run/netns
	id    int32
	known bool
}

// NewSpace is the namespace of an nsid, which has a name under /run/netns; "": none is known.
func NewSpace(nsid int, name string) Space { return Space{name: name, id: int32(nsid), known: true} }

// Is reports whether both are one namespace, whatever their names.
func (s Space) Is(o Space) bool { return s.known && o.known && s.id == o.id }

// Name is the namespace's name under /run/netns; "": none is known.
func (s Space) Name() string { return s.name }

// String is "nsid:7", with the name where one is known: "nsid:7 (blue)". It is "" of the zero value.
func (s Space) String() string {
	switch {
	case !s.known:
		return ""
	case s.name == "":
		return spacePrefix + strconv.Itoa(int(s.id))
	}
	return spacePrefix + strconv.Itoa(int(s.id)) + " (" + s.name + ")"
}

const spacePrefix = "nsid:"

// MarshalText is [Space.String]: the text that the book keeps in evidence, and the socket shows.
func (s Space) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads what MarshalText wrote. Any other text was written by no ipamd, and is a namespace
// that is not known: evidence says who and where beside it, which is read all the same.
func (s *Space) UnmarshalText(text []byte) error {
	*s = Space{}
	id, name, named := strings.Cut(strings.TrimPrefix(string(text), spacePrefix), " (")
	nsid, err := strconv.ParseInt(id, 10, 32)
	is := NewSpace(int(nsid), strings.TrimSuffix(name, ")"))
	if err == nil && named == (is.name != "") && is.String() == string(text) {
		*s = is
	}
	return nil
}
