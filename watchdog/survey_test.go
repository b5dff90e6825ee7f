package watchdog

import (
	"reflect"
	"testing"

	"github.com/ipamd/ipamd/netdb"
)

// A tie holds all by which a container may belong to a lease: the runtime is
// asked for these alone.
func TestTie(t *testing.T) {
	named := func(l *netdb.Lease) { l.UID = "a1" }
	for name, tt := range map[string]struct {
		lease *netdb.Lease
		want  Tie
	}{
		"by its name":              {born("L", "a", 1), Tie{LeaseID: "L", Owners: []string{"a"}}},
		"and its incarnation":      {born("L", "a", 1, named), Tie{LeaseID: "L", Owners: []string{"a", "a1"}}},
		"and what it has recorded": {born("L", "a", 1, records("c1", "c2")), Tie{LeaseID: "L", Owners: []string{"a"}, IDs: []string{"c1", "c2"}}},
	} {
		if got := tie(tt.lease); !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%s: %+v, want %+v", name, got, tt.want)
		}
	}
}
