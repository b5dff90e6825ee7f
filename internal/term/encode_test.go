package term

import (
	"bytes"
	"testing"

	"go.yaml.in/yaml/v3"
	"pgregory.net/rapid"
)

// YAML and JSON of one value are the same tree.
func TestYAMLIsTheSameTree(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		text := rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{"yes", "null", "1e3", "0x10", "1:20", "~", "- a", "{", "2026-11-21", "012", ".5"}))
		v := map[string]any{
			"text": text.Draw(rt, "text"), "list": rapid.SliceOf(text).Draw(rt, "list"),
			"n": rapid.Int64().Draw(rt, "n"), "f": rapid.Float64Range(1e-9, 1e9).Draw(rt, "f"), "yes": true, "none": nil,
		}
		var asJSON, asYAML bytes.Buffer
		if err := Encode(&asJSON, "json", v); err != nil {
			rt.Fatal(err)
		}
		if err := Encode(&asYAML, "yaml", v); err != nil {
			rt.Fatal(err)
		}
		var doc any
		if err := yaml.Unmarshal(asYAML.Bytes(), &doc); err != nil {
			rt.Fatalf("%v\n%s", err, asYAML.String())
		}
		var again bytes.Buffer
		if err := Encode(&again, "json", doc); err != nil {
			rt.Fatal(err)
		}
		if again.String() != asJSON.String() {
			rt.Fatalf("JSON %s\nYAML %s\nback %s", asJSON.String(), asYAML.String(), again.String())
		}
	})
}
