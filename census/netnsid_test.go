package census_test

import (
	"encoding/json"
	"testing"

	"github.com/ipamd/ipamd/census"
)

// The evidence of older books has a namespace as text, and a newer book's is the same to the byte.
func TestNetnsIDIsTheTextOfEvidence(t *testing.T) {
	for text, want := range map[string]census.NetnsID{
		`"nsid:0"`:                    census.NewNetnsID(0, ""),
		`"nsid:7"`:                    census.NewNetnsID(7, ""),
		`"nsid:7 (blue)"`:             census.NewNetnsID(7, "blue"),
		`"nsid:7 (red) (blue)"`:       census.NewNetnsID(7, "red) (blue"),
		`"nsid:7 (a \u0026 (b))"`:     census.NewNetnsID(7, "a & (b)"),
		`"nsid:-1"`:                   census.NewNetnsID(-1, ""),
		`"nsid:2147483647 (nsid:7 )"`: census.NewNetnsID(2147483647, "nsid:7 "),
	} {
		const before, after = `{"address":"10.8.64.2","witness":"netns","at":"2026-11-21T09:00:00Z","bridge":"rt0","port":"p","netns":`, `,"mac":"m"}`
		seen := census.ParseEvidence(json.RawMessage("[" + before + text + after + "]"))
		if len(seen) != 1 || seen[0].Netns != want {
			t.Errorf("%s is read as %+v", text, seen)
			continue
		}
		if b, err := json.Marshal(seen[0]); err != nil || string(b) != before+text+after {
			t.Errorf("%s is written as %s, %v", text, b, err)
		}
	}
	for _, text := range []string{`""`, `"blue"`, `"nsid:"`, `"nsid:x"`, `"nsid:7 ()"`, `"nsid:7 (blue"`, `"nsid:7 blue"`, `"nsid:99999999999"`, `"7"`, `"nsid:07"`} {
		seen := census.ParseEvidence(json.RawMessage(`[{"address":"10.8.64.2","netns":` + text + `,"port":"p"}]`))
		if len(seen) != 1 || seen[0].Netns != (census.NetnsID{}) || seen[0].Port != "p" {
			t.Errorf("%s is read as %+v", text, seen)
		}
	}
}

func TestNetnsIDIs(t *testing.T) {
	blue, bare, other := census.NewNetnsID(7, "blue"), census.NewNetnsID(7, ""), census.NewNetnsID(70, "blue")
	if !blue.Is(bare) || !bare.Is(blue) || blue.Is(other) || (census.NetnsID{}).Is(census.NetnsID{}) || census.NewNetnsID(0, "").Is(census.NetnsID{}) {
		t.Error("a namespace is known by its id alone")
	}
}
