package api_test

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/internal/apidoc"
)

// types is every struct that is said on the socket. TestEveryType finds a
// missing one.
var types = map[string]any{
	"Lease": api.Lease{}, "Container": api.Container{}, "Sighting": api.Sighting{}, "Silence": api.Silence{},
	"AllocateRequest": api.AllocateRequest{}, "AllocateReply": api.AllocateReply{}, "Network": api.Network{},
	"Route": api.Route{}, "Skipped": api.Skipped{}, "BindRequest": api.BindRequest{},
	"PauseRequest": api.PauseRequest{}, "WakePolicy": api.WakePolicy{}, "Sleep": api.Sleep{}, "Flight": api.Flight{}, "Cause": api.Cause{}, "WakeRequest": api.WakeRequest{}, "AckRequest": api.AckRequest{}, "ForceReleaseRequest": api.ForceReleaseRequest{},
	"ReleaseRequest": api.ReleaseRequest{}, "LeaseReply": api.LeaseReply{}, "Blocker": api.Blocker{}, "BindWarning": api.BindWarning{},
	"AttachRequest": api.AttachRequest{}, "DetachRequest": api.DetachRequest{}, "PlumbRequest": api.PlumbRequest{}, "PlumbReply": api.PlumbReply{}, "PlumbDoneRequest": api.PlumbDoneRequest{}, "PlumbDoneReply": api.PlumbDoneReply{}, "PlumbStatus": api.PlumbStatus{},
	"PoolRequest": api.PoolRequest{}, "DrainRequest": api.DrainRequest{}, "PoolReply": api.PoolReply{}, "PoolEffect": api.PoolEffect{},
	"CancelRequest": api.CancelRequest{}, "CancelReply": api.CancelReply{}, "LeaseList": api.LeaseList{},
	"WhoisReply": api.WhoisReply{}, "WitnessAnswer": api.WitnessAnswer{}, "Change": api.Change{}, "Described": api.Described{}, "BookRefusal": api.BookRefusal{}, "Withheld": api.Withheld{}, "WithheldList": api.WithheldList{},
	"ChangeList": api.ChangeList{}, "Event": api.Event{}, "QuarantineRequest": api.QuarantineRequest{}, "AdoptRequest": api.AdoptRequest{}, "Pool": api.Pool{},
	"PoolList": api.PoolList{}, "PoolReservation": api.PoolReservation{}, "PoolWarm": api.PoolWarm{}, "PoolSlots": api.PoolSlots{}, "WarmRequest": api.WarmRequest{}, "GivenSlot": api.GivenSlot{}, "Slot": api.Slot{}, "SlotList": api.SlotList{}, "Status": api.Status{}, "Stuck": api.Stuck{}, "BookStatus": api.BookStatus{},
	"BridgeStatus": api.BridgeStatus{}, "Finding": api.Finding{}, "DoctorReply": api.DoctorReply{},
	"ReconcileRequest": api.ReconcileRequest{}, "ReconcileReply": api.ReconcileReply{}, "Report": api.Report{},
	"AdoptBookRequest": api.AdoptBookRequest{}, "AdoptBookReply": api.AdoptBookReply{}, "BackupRequest": api.BackupRequest{}, "BackupReply": api.BackupReply{}, "CheckBookReply": api.CheckBookReply{}, "BookFinding": api.BookFinding{}, "RulesReply": api.RulesReply{}, "PortRules": api.PortRules{}, "Allowed": api.Allowed{}, "Refused": api.Refused{}, "RuleDifference": api.RuleDifference{}, "BookIdentity": api.BookIdentity{}, "BookLease": api.BookLease{},
	"Action": api.Action{}, "Held": api.Held{},
	"Health": api.Health{}, "VersionReply": api.VersionReply{}, "Error": api.Error{},
}

func load(t *testing.T) *apidoc.Doc { return apidoc.Load(t, "openapi.yaml") }

func object(v any) map[string]any {
	m, _ := v.(map[string]any)
	return m
}

func list(v any) (out []string) {
	all, _ := v.([]any)
	for _, x := range all {
		out = append(out, fmt.Sprint(x))
	}
	return out
}

func components(d *apidoc.Doc, kind string) map[string]any {
	return object(object(d.Root["components"])[kind])
}

// declared returns the names that the package's files declare. The table of routes is
// no wire type.
func declared(t *testing.T, pick func(ast.Spec) []string) (out []string) {
	t.Helper()
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if file != "routes.go" && !strings.HasSuffix(file, "_test.go") {
			out = append(out, declaredIn(t, file, pick)...)
		}
	}
	return out
}

func declaredIn(t *testing.T, file string, pick func(ast.Spec) []string) (out []string) {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range f.Decls {
		if g, ok := d.(*ast.GenDecl); ok {
			for _, s := range g.Specs {
				out = append(out, pick(s)...)
			}
		}
	}
	return out
}

func structs(s ast.Spec) []string {
	if ts, ok := s.(*ast.TypeSpec); ok {
		if _, ok := ts.Type.(*ast.StructType); ok {
			return []string{ts.Name.Name}
		}
	}
	return nil
}

// constants returns the string constants of a type.
func constants(of string) func(ast.Spec) []string {
	return func(s ast.Spec) []string {
		vs, ok := s.(*ast.ValueSpec)
		if !ok || len(vs.Values) != 1 {
			return nil
		}
		if id, ok := vs.Type.(*ast.Ident); !ok || id.Name != of {
			return nil
		}
		text, err := strconv.Unquote(vs.Values[0].(*ast.BasicLit).Value)
		if err != nil {
			panic(err)
		}
		return []string{text}
	}
}

func same(t *testing.T, what string, got, want []string) {
	t.Helper()
	got, want = slices.Sorted(slices.Values(got)), slices.Sorted(slices.Values(want))
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("%s (-Go +openapi.yaml):\n%s", what, d)
	}
}

func TestEveryType(t *testing.T) {
	d := load(t)
	var inDoc []string
	for name, s := range components(d, "schemas") {
		if object(s)["type"] == "object" {
			inDoc = append(inDoc, name)
		}
	}
	inGo := declared(t, structs)
	same(t, "types", inDoc, inGo)
	same(t, "types under test", slices.Collect(maps.Keys(types)), inGo)
}

func TestEveryField(t *testing.T) {
	d := load(t)
	for name, zero := range types {
		t.Run(name, func(t *testing.T) {
			schema, of := object(components(d, "schemas")[name]), reflect.TypeOf(zero)
			properties := object(schema["properties"])
			var fields, required []string
			for i := range of.NumField() {
				f := of.Field(i)
				tag, options, _ := strings.Cut(f.Tag.Get("json"), ",")
				fields = append(fields, tag)
				if options == "" {
					required = append(required, tag)
				}
				if got, want := shape(d, properties[tag]), shapeOf(f.Type); got != want {
					t.Errorf("%s is %s in openapi.yaml and %s in Go", tag, got, want)
				}
			}
			same(t, "fields", slices.Collect(maps.Keys(properties)), fields)
			same(t, "required fields", list(schema["required"]), required)
			if closed := schema["additionalProperties"] == false; closed != strings.HasSuffix(name, "Request") {
				t.Errorf("additionalProperties is false: %v; the server refuses them in requests alone", closed)
			}
			whole(t, name, schema)
		})
	}
}

// shape says what a schema takes, in the words of shapeOf.
func shape(d *apidoc.Doc, schema any) string {
	s := object(schema)
	if ref, ok := s["$ref"].(string); ok {
		name := ref[strings.LastIndex(ref, "/")+1:]
		if object(components(d, "schemas")[name])["type"] == "object" {
			return name
		}
		return shape(d, components(d, "schemas")[name])
	}
	switch {
	case s["type"] == "array":
		return "list of " + shape(d, s["items"])
	case s["type"] == "object" && s["additionalProperties"] == true:
		return "map of anything"
	case s["type"] == "object":
		return "map of " + shape(d, s["additionalProperties"])
	case s["format"] == "date-time":
		return "time"
	}
	return fmt.Sprint(s["type"])
}

func shapeOf(t reflect.Type) string {
	if t == reflect.TypeFor[time.Time]() {
		return "time"
	}
	switch t.Kind() {
	case reflect.Pointer:
		return shapeOf(t.Elem())
	case reflect.Slice:
		return "list of " + shapeOf(t.Elem())
	case reflect.Map:
		return "map of " + shapeOf(t.Elem())
	case reflect.Interface:
		return "anything"
	case reflect.Struct:
		return t.Name()
	case reflect.Bool:
		return "boolean"
	case reflect.Int, reflect.Int64, reflect.Uint64:
		return "integer"
	}
	return t.Kind().String()
}

// whole finds a sentence that YAML cut at a comma: its rest is a key without
// a value.
func whole(t *testing.T, at string, v any) {
	for k, sub := range object(v) {
		if sub == nil {
			t.Errorf("%s: %q has no value", at, k)
		}
		whole(t, at+"."+k, sub)
	}
}

func TestEveryCode(t *testing.T) {
	d := load(t)
	var codes []string
	for _, c := range api.Codes() {
		codes = append(codes, string(c))
	}
	same(t, "codes against errors.go", codes, declaredIn(t, "errors.go", constants("Code")))
	code := object(components(d, "schemas")["Code"])
	same(t, "codes", list(code["enum"]), codes)

	// The description has status and retry of each: "503 a*, b · 404 c".
	documented := make(map[string]string)
	_, statuses, _ := strings.Cut(code["description"].(string), "\n\n")
	for _, group := range strings.Split(statuses, "·") {
		status, names, _ := strings.Cut(strings.TrimSpace(group), " ")
		for _, name := range strings.Split(names, ",") {
			if name = strings.TrimSpace(name); strings.HasPrefix(name, "413") {
				continue
			}
			name, _, _ = strings.Cut(name, " ")
			documented[strings.TrimRight(name, "*)")] = status + " " + strconv.FormatBool(strings.HasSuffix(name, "*"))
		}
	}
	delete(documented, "413")
	are := make(map[string]string)
	for _, c := range api.Codes() {
		are[string(c)] = fmt.Sprintf("%d %v", c.Status(), c.Retryable())
	}
	if d := cmp.Diff(are, documented); d != "" {
		t.Errorf("status and retry (-Go +openapi.yaml):\n%s", d)
	}
}

func TestEveryState(t *testing.T) {
	d := load(t)
	for kind, want := range map[string][]string{
		"State":     declared(t, constants("State")),
		"Family":    declared(t, constants("Family")),
		"PoolState": declared(t, constants("PoolState")), "PoolChange": declared(t, constants("PoolChange")),
		"RemoveMode": declared(t, constants("RemoveMode")), "Effect": declared(t, constants("Effect")),
	} {
		same(t, kind, list(object(components(d, "schemas")[kind])["enum"]), want)
	}
}

func TestEveryRoute(t *testing.T) {
	d := load(t)
	var inDoc, inGo []string
	for path, item := range object(d.Root["paths"]) {
		for method := range object(item) {
			inDoc = append(inDoc, strings.ToUpper(method)+" "+path)
		}
	}
	same(t, "verbs", verbs(d), declaredIn(t, "routes.go", constants("Verb")))
	for _, e := range api.Endpoints() {
		inGo = append(inGo, e.Method+" "+e.Path)
		t.Run(string(e.Verb), func(t *testing.T) {
			op := object(object(object(d.Root["paths"])[e.Path])[strings.ToLower(e.Method)])
			if op["operationId"] != string(e.Verb) || op["x-least-role"] != string(e.Least) {
				t.Errorf("verb %v with role %v, want %s with %s", op["operationId"], op["x-least-role"], e.Verb, e.Least)
			}
			if e.Mutates == (e.Method == "GET") || e.Mutates && e.Least == api.Reader {
				t.Errorf("%s by a %s, mutates: %v", e.Method, e.Least, e.Mutates)
			}
			var codes []string
			for _, c := range e.Codes {
				codes = append(codes, string(c))
			}
			same(t, "codes", list(op["x-error-codes"]), codes)
			var query, inPath []string
			parameters, _ := op["parameters"].([]any)
			for _, p := range parameters {
				if ref, ok := object(p)["$ref"].(string); ok {
					p = components(d, "parameters")[ref[strings.LastIndex(ref, "/")+1:]]
				}
				switch name := object(p)["name"].(string); object(p)["in"] {
				case "query":
					query = append(query, name)
				case "header": // every verb that answers with a lease takes the same
				default:
					inPath = append(inPath, "{"+name+"}")
				}
			}
			same(t, "parameters", query, e.Query)
			for _, name := range inPath {
				if !strings.Contains(e.Path, name) {
					t.Errorf("%s is not in the path", name)
				}
			}
			if strings.Count(e.Path, "{") != len(inPath) {
				t.Errorf("the path has other parameters than %v", inPath)
			}
		})
	}
	same(t, "routes", inDoc, inGo)
}

func verbs(d *apidoc.Doc) (out []string) {
	for _, item := range object(d.Root["paths"]) {
		for _, op := range object(item) {
			out = append(out, fmt.Sprint(object(op)["operationId"]))
		}
	}
	return out
}

// TestExamples checks every example against the schema beside it.
func TestExamples(t *testing.T) {
	d := load(t)
	n := 0
	var walk func(v any)
	walk = func(v any) {
		switch v := v.(type) {
		case []any:
			for _, sub := range v {
				walk(sub)
			}
		case map[string]any:
			ref, _ := object(v["schema"])["$ref"].(string)
			for _, ex := range object(v["examples"]) {
				n++
				d.Value(t, ref[strings.LastIndex(ref, "/")+1:], object(ex)["value"])
			}
			for _, sub := range v {
				walk(sub)
			}
		}
	}
	walk(d.Root)
	if n == 0 {
		t.Error("found no example")
	}
}

// TestErrorReads: an error is as documented, and reads as code and message.
func TestErrorReads(t *testing.T) {
	e := &api.Error{Code: api.LeaseGone, Message: "lease is gone", Revision: 7, Epoch: "e"}
	text, err := json.Marshal(e)
	if err != nil {
		t.Fatal(err)
	}
	load(t).Check(t, "Error", text)
	if e.Error() != "lease is gone" {
		t.Error(e.Error())
	}
	e.Message = "it ended"
	if e.Error() != "it ended (lease_gone)" {
		t.Error(e.Error())
	}
}

func TestRoles(t *testing.T) {
	order := []api.Role{"", api.Reader, api.Runtime, api.Admin}
	for i, r := range order {
		for j, least := range order {
			if r.Includes(least) != (i >= j) {
				t.Errorf("%q includes %q: %v", r, least, r.Includes(least))
			}
		}
	}
	if api.Role("root").Includes(api.Reader) {
		t.Error("an unknown role includes reader")
	}
}
