package ctrd_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/errdefs"
	"github.com/containerd/typeurl/v2"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/ipamd/ipamd/internal/ctrdtest"
	"github.com/ipamd/ipamd/watchdog"
)

// G9: updates make a record larger than containerd sends in one message. It concerns
// its own container: all others are read, and of it the labels that matter; it is there
// for its lease, and is read as any other once it is smaller.
func TestG9ARecordThatIsTooLargeToSend(t *testing.T) {
	ctrdtest.Each(t, func(t *testing.T, d *ctrdtest.Daemon) {
		create(t, d, 3, 1, 10)
		ctx := namespaces.WithNamespace(t.Context(), "sandboxes")
		c, err := containerd.New(d.Address)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		half := func(size int) *anypb.Any { return &anypb.Any{TypeUrl: "x", Value: bytes.Repeat([]byte("x"), size)} }
		id := "c1f" // between the others; each letter of a word costs some eight lists of 18 MiB
		record := containers.Container{ID: id, Spec: half(9 << 20), Runtime: containers.RuntimeInfo{Name: "io.containerd.runc.v2"},
			Labels: map[string]string{ownerLabel: "b g", leaseLabel: "big", ipLabel: "10.8.64.9"}}
		if _, err := c.ContainerService().Create(ctx, record); err != nil {
			t.Fatal(err)
		}
		extend := func(size int) error {
			_, err := c.ContainerService().Update(ctx, containers.Container{ID: id, Extensions: map[string]typeurl.Any{"tenant": half(size)}}, "extensions.tenant")
			return err
		}
		x := look(t, d)
		all := func(when string) {
			t.Helper()
			for range 2 {
				if err := x.w.Refresh(t.Context()); err != nil {
					t.Fatalf("%s: %v", when, err)
				}
			}
			if s := x.silence(); s != "" || x.by("10.8.64.2") != "sandboxes/c0" || x.by("10.8.64.4") != "sandboxes/c2" || x.by("10.8.64.9") != "sandboxes/"+id {
				t.Errorf("%s: silent %q; seen %q, %q, %q", when, s, x.by("10.8.64.2"), x.by("10.8.64.4"), x.by("10.8.64.9"))
			}
			is := func(w watchdog.Record) bool { return w.ID == id && w.Sandbox == "b g" && w.LeaseID == "big" }
			if list, err := x.w.List(t.Context()); err != nil || len(list) != 4 || !slices.ContainsFunc(list, is) {
				t.Errorf("%s: %+v, %v", when, list, err)
			}
			if list, err := x.w.Tied(t.Context(), []watchdog.Tie{{LeaseID: "big"}}); err != nil || len(list) != 1 || !is(list[0]) {
				t.Errorf("%s: tied: %+v, %v", when, list, err)
			}
			if list, err := x.w.Tied(t.Context(), []watchdog.Tie{{Owners: []string{"s1"}}}); err != nil || len(list) != 1 || list[0].ID != "c1" {
				t.Errorf("%s: tied to another: %+v, %v", when, list, err)
			}
			if l, err := x.w.Look(t.Context(), watchdog.Container{Namespace: "sandboxes", ID: id}); err != nil || !l.Found {
				t.Errorf("%s: %+v, %v", when, l, err)
			}
		}
		all("as any other")
		if err := extend(9 << 20); !errdefs.IsResourceExhausted(err) {
			t.Fatalf("it can be sent: %v", err)
		}
		all("too large")
		if s := x.seen("10.8.64.9"); len(s) != 1 || !strings.Contains(s[0].Unread, "larger than containerd sends") || s[0].At.IsZero() {
			t.Errorf("no finding is made of it: %+v", s)
		}
		if err := extend(1); err != nil {
			t.Fatal(err)
		}
		all("smaller again")
		if err := extend(9 << 20); !errdefs.IsResourceExhausted(err) {
			t.Fatalf("it can be sent: %v", err)
		}
		all("too large again")
		if err := c.ContainerService().Delete(ctx, id); err != nil {
			t.Fatal(err)
		}
		if list, err := x.w.List(t.Context()); err != nil || len(list) != 3 {
			t.Errorf("deleted: %+v, %v", list, err)
		}
		if l, err := x.w.Look(t.Context(), watchdog.Container{Namespace: "sandboxes", ID: id}); err != nil || l.Found {
			t.Errorf("deleted: %+v, %v", l, err)
		}
	})
}
