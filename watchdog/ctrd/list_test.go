package ctrd_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/ipamd/ipamd/internal/ctrdtest"
	"github.com/ipamd/ipamd/watchdog"
	"github.com/ipamd/ipamd/watchdog/ctrd"
)

// Whatever holds a container to a lease, Tied finds it, and leaves the others
// where they are as long as containerd can be asked for them by name.
func TestTied(t *testing.T) {
	ctrdtest.Each(t, func(t *testing.T, d *ctrdtest.Daemon) {
		x := look(t, d, func(c *ctrd.Config) { c.Namespaces = []string{"sandboxes", "others"} })
		labelled := func(ns, id, owner, lease string) {
			d.Create(t, ctrdtest.Spec{Namespace: ns, ID: id, Labels: map[string]string{ownerLabel: owner, leaseLabel: lease}})
		}
		labelled("sandboxes", "by-id", "s-1", "l-1")
		labelled("sandboxes", "by-lease", "s-2", "l-2")
		labelled("others", "by-owner", "s-3", "l-3")
		labelled("sandboxes", "odd", `s "4" ü\`, "l-4")
		labelled("sandboxes", "stranger", "s-5", "l-5")
		d.Create(t, ctrdtest.Spec{Namespace: "sandboxes", ID: "bare"})
		all := "bare by-id by-lease by-owner odd stranger"
		many := make([]watchdog.Tie, 100)
		for i := range many {
			many[i] = watchdog.Tie{LeaseID: fmt.Sprint("x-", i)}
		}
		for _, c := range []struct {
			what string
			ties []watchdog.Tie
			want string
		}{
			{"an id", []watchdog.Tie{{LeaseID: "l-0", Owners: []string{"s-0"}, IDs: []string{"by-id", "gone"}}}, "by-id"},
			{"a lease label", []watchdog.Tie{{LeaseID: "l-2", Owners: []string{"s-0"}}}, "by-lease"},
			{"an owner label", []watchdog.Tie{{LeaseID: "l-0", Owners: []string{"s-0", "s-3"}}}, "by-owner"},
			{"several leases", []watchdog.Tie{{LeaseID: "l-1"}, {LeaseID: "l-2", Owners: []string{"s-2"}}, {LeaseID: "l-2"}}, "by-id by-lease"},
			{"no owner", []watchdog.Tie{{LeaseID: "l-0", Owners: []string{""}}}, ""},
			{"what cannot be quoted", []watchdog.Tie{{LeaseID: "l-0", Owners: []string{`s "4" ü\`}}}, all},
			{"too many to name", many, all},
			{"no tie", nil, all},
		} {
			list, err := x.w.Tied(t.Context(), c.ties)
			if err != nil {
				t.Errorf("%s: %v", c.what, err)
			}
			var got []string
			for _, one := range list {
				got = append(got, one.ID)
			}
			if slices.Sort(got); strings.Join(got, " ") != c.want {
				t.Errorf("%s: %v, want %s", c.what, got, c.want)
			}
		}
	})
}
