package reconciler

import (
	"strings"
	"testing"

	"github.com/ipamd/ipamd/ipam"
)

// F26: a workload whose labels no lease can have is quarantined once, and not
// adopted anew at each pass; doctor says which label of which container it is.
func TestF26LabelsThatNoLeaseCanHave(t *testing.T) {
	long := strings.Repeat("x", ipam.MaxName+1)
	for name, tt := range map[string]struct {
		of   line
		says string
	}{
		"a long owner":           {container("c1", owner(long), ip("10.8.64.2"), runs), "owner label has 254 bytes"},
		"a long uid":             {container("c1", owner("A"), as(long), ip("10.8.64.2"), runs), "uid label has 254 bytes"},
		"an owner that is bytes": {container("c1", owner("\xff"), ip("10.8.64.2"), runs), "no UTF-8"},
	} {
		t.Run(name, func(t *testing.T) {
			expect(t, worldOf(tt.of), "quarantine 10.8.64.2", "report unleased 10.8.64.2")
			y := plain(t)
			y.show(tt.of)
			y.pass("quarantine 10.8.64.2 done", "report unleased 10.8.64.2")
			rev := y.book.Rev()
			for range 3 {
				y.pass("report unleased 10.8.64.2")
			}
			if y.book.Rev() != rev {
				t.Errorf("later passes wrote: revision %d, and then %d", rev, y.book.Rev())
			}
			f := y.Last().Findings[0]
			if !strings.Contains(f.Detail, tt.says) || !strings.Contains(f.Detail, "default/c1") || f.Repair != "ctr -n default containers info c1" {
				t.Errorf("it says %q; %q", f.Detail, f.Repair)
			}
		})
	}
}

// Of two faults of one workload each pass reports the same.
func TestOfTwoUnfitLabelsTheOwnersIsReported(t *testing.T) {
	c := claimant{sandbox: strings.Repeat("x", ipam.MaxName+1), uid: "\xff"}
	for range 100 {
		if why := c.unfit(); !strings.Contains(why, "owner label") {
			t.Fatalf("it says %q", why)
		}
	}
}
