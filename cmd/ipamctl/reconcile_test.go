package main

import (
	"testing"

	"github.com/ipamd/ipamd/api"
)

// What a script learns of a pass.
func TestOutcome(t *testing.T) {
	did := func(result, failure string) []api.Action {
		return []api.Action{{Kind: "bind", Result: "done"}, {Kind: "reap", Result: result, Error: failure}}
	}
	for name, tt := range map[string]struct {
		report api.Report
		want   error
	}{
		"nothing to do":          {api.Report{Complete: true}, nil},
		"all done":               {api.Report{Complete: true, Actions: did("done", "")}, nil},
		"all planned":            {api.Report{Complete: true, Preview: true, Actions: did("planned", "")}, nil},
		"changed meanwhile":      {api.Report{Complete: true, Actions: did("skipped", "")}, nil},
		"a person has to decide": {api.Report{Complete: true, Reports: []api.Finding{{Kind: "stray"}}}, nil},
		"held":                   {api.Report{Complete: true, Held: &api.Held{}}, exitWith(exitHeld)},
		"one held":               {api.Report{Complete: true, Actions: did("held", "")}, exitWith(exitHeld)},
		"one failed":             {api.Report{Complete: true, Actions: did("skipped", "the book is busy")}, exitWith(exitHeld)},
		"a witness silent":       {api.Report{Actions: did("done", "")}, exitWith(exitUnavailable)},
		"silent and held":        {api.Report{Held: &api.Held{}}, exitWith(exitHeld)},
	} {
		if got := outcome(&tt.report); got != tt.want {
			t.Errorf("%s: %v, want %v", name, got, tt.want)
		}
	}
}
