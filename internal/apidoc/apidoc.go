// Package apidoc reads the OpenAPI document for tests, and holds what is
// really said on the socket against it.
package apidoc

import (
	"bytes"
	"encoding/json"
	"os"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"
)

// A Doc is the document, as plain JSON values, and its schemas. OpenAPI 3.1
// schemas are JSON Schema of 2020-12, so they are compiled as they stand.
type Doc struct {
	Root     map[string]any
	compiler *jsonschema.Compiler
	schemas  map[string]*jsonschema.Schema
}

const base = "file:///openapi.json"

// Load reads the document at path.
func Load(t testing.TB, path string) *Doc {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var tree any
	if err := yaml.Unmarshal(text, &tree); err != nil {
		t.Fatal(err)
	}
	root, ok := plain(t, tree).(map[string]any)
	if !ok {
		t.Fatalf("%s is not an object", path)
	}
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	c.AssertFormat()
	if err := c.AddResource(base, root); err != nil {
		t.Fatal(err)
	}
	return &Doc{Root: root, compiler: c, schemas: make(map[string]*jsonschema.Schema)}
}

// Schema compiles one of the document's schemas.
func (d *Doc) Schema(t testing.TB, name string) *jsonschema.Schema {
	t.Helper()
	if s := d.schemas[name]; s != nil {
		return s
	}
	s, err := d.compiler.Compile(base + "#/components/schemas/" + name)
	if err != nil {
		t.Fatal(err)
	}
	d.schemas[name] = s
	return s
}

// Check fails the test when a JSON text is not what the schema says.
func (d *Doc) Check(t testing.TB, schema string, text []byte) {
	t.Helper()
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Errorf("%s: %v", schema, err)
		return
	}
	if err := d.Schema(t, schema).Validate(v); err != nil {
		t.Errorf("%s is not as openapi.yaml says: %v\n%s", schema, err, text)
	}
}

// Value is [Doc.Check] for a value of the document itself.
func (d *Doc) Value(t testing.TB, schema string, value any) {
	t.Helper()
	text, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	d.Check(t, schema, text)
}

func plain(t testing.TB, tree any) any {
	t.Helper()
	text, err := json.Marshal(tree)
	if err != nil {
		t.Fatal(err)
	}
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return v
}
