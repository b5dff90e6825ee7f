package poolmap

import (
	"fmt"
	"testing"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/internal/term"
)

// Only nothing is 0%, and only all of it is 100%.
func TestPercent(t *testing.T) {
	for _, c := range []struct {
		free, size uint64
		want       string
	}{{0, 0, "-"}, {4, 4, "0%"}, {0, 4, "100%"}, {1, 1000, "99%"}, {999, 1000, "<1%"}, {2, 4, "50%"}} {
		if got := Percent(api.Pool{Free: c.free, Size: c.size}); got != c.want {
			t.Errorf("%d of %d free: %s, want %s", c.free, c.size, got, c.want)
		}
	}
}

// A runner that gave each address once and gives no more is idle: what has cooled is
// available, whether the book still has its row or not.
func TestRestedAddressesAreAvailable(t *testing.T) {
	idle := api.Pool{Size: 10, Free: 0, Available: 8, ByState: map[string]int{"cooling": 9, "bound": 1}}
	if got := Percent(idle); got != "20%" {
		t.Errorf("%s of an idle pool cannot be given", got)
	}
	if got := fmt.Sprint(term.Cells(shares(idle), 10)); got != "[1 1 0 0 8]" {
		t.Errorf("the bar of an idle pool is %s", got)
	}
}
