package netdb_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/ipamd/ipamd/ipam"
	. "github.com/ipamd/ipamd/netdb/netdbtest"
)

// What a query selects, newest first: by time on the wall clock, also when it
// was set back in between, and with a limit.
func TestHistorySelects(t *testing.T) {
	c := NewClock()
	b, _ := openWith(t, c, "10.8.64.0/24")
	start := c.Wall
	for i := range 6 { // revisions 2 to 7, ten minutes apart
		Reserve(t, b, fmt.Sprint("s", i))
		c.Pass(10 * time.Minute)
	}
	c.Step(-70 * time.Minute)
	Reserve(t, b, "set-back") // revision 8, ten minutes before all others
	at := func(d time.Duration) time.Time { return start.Add(d) }
	for name, tt := range map[string]struct {
		q    ipam.Query
		revs string
	}{
		"everything":                         {ipam.Query{}, "8 7 6 5 4 3 2"},
		"a limit":                            {ipam.Query{Limit: 2}, "8 7"},
		"since before all":                   {ipam.Query{Since: at(-time.Hour)}, "8 7 6 5 4 3 2"},
		"since the start":                    {ipam.Query{Since: at(0)}, "7 6 5 4 3 2"},
		"since one, that one too":            {ipam.Query{Since: at(30 * time.Minute)}, "7 6 5"},
		"since a nanosecond behind it":       {ipam.Query{Since: at(30*time.Minute + 1)}, "7 6"},
		"since after all":                    {ipam.Query{Since: at(time.Hour)}, ""},
		"since, with a limit":                {ipam.Query{Since: at(10 * time.Minute), Limit: 2}, "7 6"},
		"since, with a limit that is enough": {ipam.Query{Since: at(40 * time.Minute), Limit: 5}, "7 6"},
		"since, of one sandbox":              {ipam.Query{Since: at(10 * time.Minute), Sandbox: "s4"}, "6"},
		"since, of one that was before":      {ipam.Query{Since: at(10 * time.Minute), Sandbox: "s0"}, ""},
		"since, of one address":              {ipam.Query{Since: at(10 * time.Minute), Addr: two.Next().Next()}, "4"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := b.History(ctx, tt.q)
			if err != nil {
				t.Fatal(err)
			}
			var revs []string
			for _, ch := range got {
				revs = append(revs, fmt.Sprint(ch.Rev))
			}
			if strings.Join(revs, " ") != tt.revs {
				t.Errorf("revisions %v, want %s", revs, tt.revs)
			}
		})
	}
}

// The stream's reading joins a row's columns into one: it has every change as the history's
// own reading has it, also where a name or a note has what lies between two columns.
func TestChangesAreAsTheHistoryHasThem(t *testing.T) {
	t.Parallel()
	b := Open(t)
	from := b.Rev()
	who := Who(ipam.ByClient, "test")
	for _, name := range []string{"plain", "a\x1fb", strings.Repeat("\x1f", 253), "\x1f", "é\u2028", `"`, "last"} {
		l := Reserve(t, b, name)
		if _, err := b.ConflictAt(t.Context(), Who(ipam.ByReconciler, "seen"), l.ID, l.Rev, json.RawMessage(`[{"witness":"probe","note":"a\u001fb"}]`)); err != nil {
			t.Fatal(err)
		}
		who.Note = "because of " + name
		if _, err := b.Release(t.Context(), who, l.ID, "", 0); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := b.Cancel(t.Context(), who, "never\x1fcame", 3); err != nil {
		t.Fatal(err)
	}
	for _, limit := range []int{1, 2, 1000} {
		var got []ipam.Change
		for at := from; at < b.Rev(); at = got[len(got)-1].Rev {
			some, err := b.Changes(t.Context(), at, limit)
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, some...)
		}
		want, err := b.History(t.Context(), ipam.Query{})
		if err != nil {
			t.Fatal(err)
		}
		want = slices.DeleteFunc(want, func(c ipam.Change) bool { return c.Rev <= from })
		slices.Reverse(want)
		if diff := cmp.Diff(want, got, cmpopts.EquateComparable(want[0].Addr)); diff != "" || len(got) < 22 {
			t.Errorf("%d at once, %d changes: %s", limit, len(got), diff)
		}
	}
}
