package doctor

import (
	"cmp"
	"fmt"

	"github.com/ipamd/ipamd/reconciler"
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

// alike is what findings have in common by which they are made one.
type alike struct {
	kind string
	reconciler.Source
}

// least is from how many on they are.
func (a alike) least() int {
	if a.Source == (reconciler.Source{}) {
		return crowdFrom
	}
	return foldFrom
}

// fold makes one finding of many that say the same of one stranger, or of none
// in particular, in the place of the first. The others stay as they are.
func fold(all []reconciler.Finding) []reconciler.Finding {
	groups := make(map[alike][]reconciler.Finding)
	for _, f := range all {
		groups[alike{f.Kind, f.Source}] = append(groups[alike{f.Kind, f.Source}], f)
	}
	out := make([]reconciler.Finding, 0, len(groups))
	done := make(map[alike]bool)
	for _, f := range all {
		a := alike{f.Kind, f.Source}
		switch same := groups[a]; {
		case len(same) < a.least():
			out = append(out, f)
		case !done[a]:
			done[a] = true
			out = append(out, folded(same))
		}
	}
	return out
}

// folded is the first of the findings, with the earliest moment of all, how many
// they are, and the first addresses in their order.
func folded(same []reconciler.Finding) reconciler.Finding {
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
	if f.Source != (reconciler.Source{}) {
		what = fmt.Sprintf("%d addresses show one stranger, %s behind port %s", len(same), f.Source.MAC, cmp.Or(f.Source.Port, "unknown"))
	}
	f.Detail = what + "; the first: " + f.Detail
	return f
}
