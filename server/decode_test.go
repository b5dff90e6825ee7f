package server

import (
	"bytes"
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/ipamd/ipamd/allocator"
	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/netdb"
)

// FuzzDecode: whatever comes, the decoder answers or names a field, and what
// it took says the same when it is written and taken again (S3).
func FuzzDecode(f *testing.F) {
	for _, seed := range []string{
		``, `{}`, `{"sandbox":"a","uid":"b","attempt":2,"labels":{"k":"v"}}`, `{"sandbx":1}`, `{"sandbox":"a"}x`,
		`{"containers":[{"namespace":"d","id":"c"}],"mac":"02:00:00:00:00:01"}`, `{"containers":[{"idd":1}]}`,
		`{"sandbox":"\ud83d\ude00"}`, "{\"sandbox\":\"\xff\"}", `{"sandbox":"a","sandbox":"b"}`, `[[[[`, `{"":{}}`,
		`{"attempt":1e400}`, `{"labels":{"a":null}}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, into := range []any{new(api.AllocateRequest), new(api.BindRequest), new(api.ReleaseRequest),
			new(api.CancelRequest), new(api.QuarantineRequest), new(api.ReconcileRequest), new(struct{})} {
			given := bytes.Clone(data)
			err := decode(data, into)
			if !bytes.Equal(given, data) {
				t.Fatal("the input was changed")
			}
			if err != nil {
				var wrong *ipam.FieldError
				if !errors.As(err, &wrong) || wrong.Field == "" || wrong.Reason == "" || codeOf(err) != api.InvalidArgument {
					t.Fatalf("%q: %v", data, err)
				}
				if !utf8.ValidString(err.Error()) {
					t.Fatalf("the message is not UTF-8: %q", err)
				}
				continue
			}
			if !utf8.Valid(data) {
				t.Fatalf("took %q", data)
			}
			text, err := json.Marshal(into)
			if err != nil {
				t.Fatal(err)
			}
			again := reflect.New(reflect.TypeOf(into).Elem()).Interface()
			if err := decode(text, again); err != nil {
				t.Fatalf("took %q but not its own %q: %v", data, text, err)
			}
			twice, err := json.Marshal(again)
			if err != nil || !bytes.Equal(text, twice) {
				t.Fatalf("%q became %q and %q, %v", data, text, twice, err)
			}
		}
	})
}

// TestEverySentinel: no error of the rooms reads as internal.
func TestEverySentinel(t *testing.T) {
	known := map[string]error{
		"ipam.ErrInvalid": ipam.ErrInvalid, "ipam.ErrNotFound": ipam.ErrNotFound, "ipam.ErrGone": ipam.ErrGone,
		"ipam.ErrStale": ipam.ErrStale, "ipam.ErrState": ipam.ErrState, "ipam.ErrCancelled": ipam.ErrCancelled,
		"ipam.ErrTaken": ipam.ErrTaken, "ipam.ErrQuarantined": ipam.ErrQuarantined,
		"ipam.ErrNotInPool": ipam.ErrNotInPool, "ipam.ErrExhausted": ipam.ErrExhausted,
		"ipam.ErrOverlap": ipam.ErrOverlap, "ipam.ErrPoolNotEmpty": ipam.ErrPoolNotEmpty,
		"ipam.ErrStaleGeneration": ipam.ErrStaleGeneration, "ipam.ErrDraining": ipam.ErrDraining, "ipam.ErrPoolChanged": ipam.ErrPoolChanged,
		"ipam.ErrQuarantineFull": ipam.ErrQuarantineFull, "ipam.ErrNameTaken": ipam.ErrNameTaken, "netdb.ErrBusy": netdb.ErrBusy,
		"netdb.ErrReadOnly": netdb.ErrReadOnly, "netdb.ErrMoved": netdb.ErrMoved, "ipam.ErrClosed": ipam.ErrClosed,
		"allocator.ErrConflictLimit": allocator.ErrConflictLimit, "allocator.ErrEvidence": allocator.ErrEvidence,
		"allocator.ErrNotReady": allocator.ErrNotReady, "allocator.ErrBridge": allocator.ErrBridge, "allocator.ErrNoSlot": allocator.ErrNoSlot,
		"netdb.ErrIdentity": netdb.ErrIdentity, "ipam.ErrCools": ipam.ErrCools, "ipam.ErrTombstones": ipam.ErrTombstones,
	}
	// Open's errors never reach a call, nor does why a book grows, nor those of a rebuild, the watchdog and the feed.
	elsewhere := []string{"ipam.ErrGives", "ipam.ErrOtherRuntime", "ipam.ErrPruned", "netdb.ErrLocked", "netdb.ErrNotABook", "netdb.ErrNewerSchema", "netdb.ErrOlderSchema", "netdb.ErrDamaged", "netdb.ErrOldBuild", "netdb.ErrExposed", "netdb.ErrLogHeld"}
	for _, room := range []string{"ipam", "netdb", "allocator"} {
		file, err := parser.ParseFile(token.NewFileSet(), "../"+room+"/errors.go", nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if !ok || !strings.HasPrefix(spec.Names[0].Name, "Err") {
				return true
			}
			name := room + "." + spec.Names[0].Name
			if sentinel, ok := known[name]; !ok && !slices.Contains(elsewhere, name) {
				t.Errorf("%s is not known here", name)
			} else if ok && codeOf(sentinel) == api.Internal {
				t.Errorf("%s reads as internal", name)
			}
			return true
		})
	}
}

// TestSightings: what the book keeps of the census is what the socket shows.
func TestSightings(t *testing.T) {
	var c, a []string
	for f := range fields(reflect.TypeFor[census.Sighting]()) {
		if f.name != "-" { // TaskAt is the loops' own
			c = append(c, f.name)
		}
	}
	for f := range fields(reflect.TypeFor[api.Sighting]()) {
		a = append(a, f.name)
	}
	c = append(c, "belongs") // by the lease, which the census does not know
	if d := cmp.Diff(c, a); d != "" {
		t.Errorf("fields (-census +api):\n%s", d)
	}
	var full census.Sighting
	if err := json.Unmarshal([]byte(`{"address":"10.8.64.2","witness":"netns","at":"2026-11-21T09:00:00Z","bridge":"b",
		"port":"p","netns":"nsid:7 (n)","mac":"m","namespace":"ns","container":"c","sandbox":"s","uid":"u","lease_id":"l","task":"t","note":"o"}`),
		&full); err != nil {
		t.Fatal(err)
	}
	if v := reflect.ValueOf(full); v.IsZero() {
		t.Fatal("nothing was read")
	} else {
		for i := range v.NumField() {
			if v.Field(i).IsZero() && v.Type().Field(i).Tag.Get("json") != "-" {
				t.Errorf("%s is not covered", v.Type().Field(i).Name)
			}
		}
	}
	stored, err := json.Marshal([]census.Sighting{full})
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(sightings([]census.Sighting{full}), evidence(stored)); d != "" {
		t.Errorf("from the board and from the book (-board +book):\n%s", d)
	}
	if e := evidence(json.RawMessage(`{"x":1}`)); len(e) != 1 || !strings.Contains(e[0].Note, `{"x":1}`) {
		t.Errorf("foreign evidence is hidden: %+v", e)
	}
}

func TestNewRefuses(t *testing.T) {
	if _, err := New(Config{}); err == nil || !strings.Contains(err.Error(), "Book is missing") {
		t.Error(err)
	}
}
