package reconciler

import (
	"cmp"
	"encoding/json"
	"fmt"

	"github.com/ipamd/ipamd/census"
)

const (
	// foldFrom is how many findings of one kind about one MAC behind one port
	// become one: a stranger that answers for every address is one stranger.
	foldFrom = 4
	// crowdFrom is the same for findings of one kind that no stranger ties
	// together: a list as long as the pool is not read.
	crowdFrom = 33
	// foldShows bounds the addresses that a folded finding names.
	foldShows = 16
)

// A source is who is seen on an address: one MAC behind one port. The zero value
// is an unknown one.
type source struct{ port, mac string }

func sourceOf(s census.Sighting) source {
	if s.Container != "" || s.MAC == "" {
		return source{} // a workload of its own, or none that could be recognised
	}
	return source{s.Port, s.MAC}
}

// quarantinedFor is who was seen when an address was quarantined.
func quarantinedFor(evidence json.RawMessage) source {
	if seen := census.ParseEvidence(evidence); len(seen) > 0 {
		return sourceOf(seen[0])
	}
	return source{}
}

// alike is what findings have in common by which they are made one.
type alike struct {
	kind string
	source
}

// least is from how many on they are.
func (a alike) least() int {
	if a.source == (source{}) {
		return crowdFrom
	}
	return foldFrom
}

// Fold makes one finding of many that say the same of one stranger, or of none
// in particular, in the place of the first. The others stay as they are.
func Fold(all []Finding) []Finding {
	groups := make(map[alike][]Finding)
	for _, f := range all {
		groups[alike{f.Kind, f.source}] = append(groups[alike{f.Kind, f.source}], f)
	}
	out := make([]Finding, 0, len(groups))
	told := make(map[alike]bool)
	for _, f := range all {
		a := alike{f.Kind, f.source}
		switch same := groups[a]; {
		case len(same) < a.least():
			out = append(out, f)
		case !told[a]:
			told[a] = true
			out = append(out, folded(same))
		}
	}
	return out
}

// folded is the first of the findings, with the earliest moment of all, how many
// they are, and the first addresses in their order.
func folded(same []Finding) Finding {
	f := same[0]
	f.LeaseID, f.Count, f.Addrs = "", len(same), nil
	for _, s := range same {
		if !s.Since.IsZero() && (f.Since.IsZero() || s.Since.Before(f.Since)) {
			f.Since = s.Since
		}
		if s.Addr.IsValid() && len(f.Addrs) < foldShows {
			f.Addrs = append(f.Addrs, s.Addr)
		}
	}
	what := fmt.Sprintf("%d like this one", len(same))
	if f.source != (source{}) {
		what = fmt.Sprintf("%d addresses show one stranger, %s behind port %s", len(same), f.source.mac, cmp.Or(f.source.port, "unknown"))
	}
	f.Detail = what + "; the first: " + f.Detail
	return f
}
