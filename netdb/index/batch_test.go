package index

import (
	"maps"
	"testing"

	"github.com/ipamd/ipamd/ipam"
)

// A step that records the row of a lease and then ends it leaves none; that of another lease stays.
func TestWhatAStepEndsItDoesNotRecord(t *testing.T) {
	for _, recorded := range []string{"a", "b"} {
		row := LeaseRow[ipam.Sleep]{LeaseID: recorded, Row: &ipam.Sleep{LeaseID: recorded}}
		row.end("a")
		staged, rows := map[string]*ipam.Sleep{}, map[string]*ipam.Sleep{"a": {LeaseID: "a"}}
		row.stage(staged)
		row.apply(rows)
		maps.DeleteFunc(staged, func(_ string, s *ipam.Sleep) bool { return s == nil })
		for what, have := range map[string]map[string]*ipam.Sleep{"staged": staged, "applied": rows} {
			if has := have["b"] != nil; have["a"] != nil || has != (recorded == "b") {
				t.Errorf("of %s, %s: %v", recorded, what, have)
			}
		}
	}
}
