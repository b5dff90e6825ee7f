package netdb_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/ipamd/ipamd/netdb"
	"github.com/ipamd/ipamd/netdb/netdbtest"
)

// The stream's reading joins a row's columns into one: it has every change as the history's
// own reading has it, also where a name or a note has what lies between two columns.
func TestChangesAreAsTheHistoryHasThem(t *testing.T) {
	t.Parallel()
	b := netdbtest.Open(t)
	from := b.Rev()
	who := netdbtest.Who(netdb.ByClient, "test")
	for _, name := range []string{"plain", "a\x1fb", strings.Repeat("\x1f", 253), "\x1f", "é\u2028", `"`, "last"} {
		l := netdbtest.Reserve(t, b, name)
		if _, err := b.ConflictAt(t.Context(), netdbtest.Who(netdb.ByReconciler, "seen"), l.ID, l.Rev, json.RawMessage(`[{"witness":"probe","note":"a\u001fb"}]`)); err != nil {
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
		var got []netdb.Change
		for at := from; at < b.Rev(); at = got[len(got)-1].Rev {
			some, err := b.Changes(t.Context(), at, limit)
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, some...)
		}
		want, err := b.History(t.Context(), netdb.Query{})
		if err != nil {
			t.Fatal(err)
		}
		want = slices.DeleteFunc(want, func(c netdb.Change) bool { return c.Rev <= from })
		slices.Reverse(want)
		if diff := cmp.Diff(want, got, cmpopts.EquateComparable(want[0].Addr)); diff != "" || len(got) < 22 {
			t.Errorf("%d at once, %d changes: %s", limit, len(got), diff)
		}
	}
}
