package netdb_test

import (
	"path/filepath"
	"testing"

	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/netdb"
	. "github.com/ipamd/ipamd/netdb/netdbtest"
)

// The book knows one container runtime. Another takes its place by itself only
// while no lease could be wronged by its word, else by a person's.
func TestNoteRuntime(t *testing.T) {
	for name, tt := range map[string]struct {
		holds func(*testing.T, *netdb.Book)
		stays bool
	}{
		"an empty book":        {func(*testing.T, *netdb.Book) {}, false},
		"a reservation":        {func(t *testing.T, b *netdb.Book) { Reserve(t, b, "a") }, false},
		"a bound one":          {func(t *testing.T, b *netdb.Book) { inState(t, b, ipam.Bound) }, true},
		"a paused one":         {func(t *testing.T, b *netdb.Book) { inState(t, b, ipam.Paused) }, true},
		"one being released":   {func(t *testing.T, b *netdb.Book) { inState(t, b, ipam.Releasing) }, true},
		"one that cools":       {func(t *testing.T, b *netdb.Book) { inState(t, b, ipam.Cooling) }, false},
		"one without a record": {func(t *testing.T, b *netdb.Book) { boundBare(t, b) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "book.db")
			b := OpenAt(t, path, Options())
			Pool(t, b, "default", "10.8.64.0/24")
			wantErr(t, b.NoteRuntime(ctx, watchdog, "", false), ipam.ErrInvalid)
			if err := b.NoteRuntime(ctx, watchdog, "one", false); err != nil || b.Runtime() != "one" {
				t.Fatal(b.Runtime(), err)
			}
			tt.holds(t, b)
			rev := b.Rev()
			if err := b.NoteRuntime(ctx, watchdog, "one", false); err != nil || b.Rev() != rev {
				t.Errorf("the same again: %v, at %d after %d", err, b.Rev(), rev)
			}
			err, want := b.NoteRuntime(ctx, watchdog, "two", false), "two"
			if tt.stays {
				wantErr(t, err, ipam.ErrOtherRuntime)
				want = "one"
			} else if err != nil || b.Rev() != rev+1 {
				t.Errorf("another: %v, at %d after %d", err, b.Rev(), rev)
			}
			if b.Runtime() != want {
				t.Errorf("it knows %q, want %q", b.Runtime(), want)
			}
			if err := b.NoteRuntime(ctx, operator, "two", true); err != nil || b.Runtime() != "two" {
				t.Errorf("it knows %q: %v", b.Runtime(), err)
			}
			Check(t, b)
			if err := b.Close(); err != nil {
				t.Fatal(err)
			}
			if again := OpenAt(t, path, Options()); again.Runtime() != "two" {
				t.Errorf("opened again it knows %q", again.Runtime())
			}
		})
	}
}

func boundBare(t *testing.T, b *netdb.Book) {
	if _, err := b.Bind(ctx, client, Reserve(t, b, "a").ID, 0, ipam.Binding{MAC: "02:00:00:00:00:01"}); err != nil {
		t.Fatal(err)
	}
}
