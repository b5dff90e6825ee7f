package watchdog

import (
	"strings"
	"time"
)

// A KnownRuntime is what the book knows of the runtime that its containers are in.
type KnownRuntime struct {
	ID    string
	Lost  bool      // it is the one with ID from before that lost its metadata
	Whole time.Time // when Lost: until when the metadata was seen whole; zero is never
}

// is reports whether the runtime that answers with an id is the known one.
func (k KnownRuntime) is(id string) bool { return k.ID == id && !k.Lost }

// wholeUntil stands in the book between the id of a runtime that lost its metadata
// and the time.
const wholeUntil = " metadata-whole-until="

// stored is how the book has it: the id alone, or "ID metadata-whole-until=TIME".
func (k KnownRuntime) stored() string {
	if !k.Lost {
		return k.ID
	}
	return k.ID + wholeUntil + k.Whole.UTC().Format(time.RFC3339Nano)
}

// readKnown reads what the book has. What it cannot read is an id, which no runtime
// answers with.
func readKnown(stored string) KnownRuntime {
	// Books that were written before wholeUntil have this sentence in its place.
	const sentence = " before it lost its metadata, whole at "
	for _, mark := range []string{wholeUntil, sentence} {
		id, at, marked := strings.Cut(stored, mark)
		if whole, err := time.Parse(time.RFC3339Nano, at); marked && err == nil {
			return KnownRuntime{ID: id, Lost: true, Whole: whole}
		}
	}
	return KnownRuntime{ID: stored}
}

// String is for people.
func (k KnownRuntime) String() string {
	switch {
	case !k.Lost:
		return k.ID
	case k.Whole.IsZero():
		return k.ID + " before it lost its metadata"
	}
	return k.ID + " before it lost its metadata, last seen whole at " + k.Whole.UTC().Format(time.RFC3339Nano)
}
