package netdb_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ipamd/ipamd/netdb"
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
		q    netdb.Query
		revs string
	}{
		"everything":                         {netdb.Query{}, "8 7 6 5 4 3 2"},
		"a limit":                            {netdb.Query{Limit: 2}, "8 7"},
		"since before all":                   {netdb.Query{Since: at(-time.Hour)}, "8 7 6 5 4 3 2"},
		"since the start":                    {netdb.Query{Since: at(0)}, "7 6 5 4 3 2"},
		"since one, that one too":            {netdb.Query{Since: at(30 * time.Minute)}, "7 6 5"},
		"since a nanosecond behind it":       {netdb.Query{Since: at(30*time.Minute + 1)}, "7 6"},
		"since after all":                    {netdb.Query{Since: at(time.Hour)}, ""},
		"since, with a limit":                {netdb.Query{Since: at(10 * time.Minute), Limit: 2}, "7 6"},
		"since, with a limit that is enough": {netdb.Query{Since: at(40 * time.Minute), Limit: 5}, "7 6"},
		"since, of one sandbox":              {netdb.Query{Since: at(10 * time.Minute), Sandbox: "s4"}, "6"},
		"since, of one that was before":      {netdb.Query{Since: at(10 * time.Minute), Sandbox: "s0"}, ""},
		"since, of one address":              {netdb.Query{Since: at(10 * time.Minute), Addr: two.Next().Next()}, "4"},
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
