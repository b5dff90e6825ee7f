package main

import (
	"bytes"
	"context"
	"encoding/csv"
	"strings"
	"testing"
	"time"

	"github.com/ipamd/ipamd/internal/realtest"
)

// TestCurves takes two points of each, of which nothing is expected but that
// they are taken and written.
func TestCurves(t *testing.T) {
	realtest.Root(t)
	b, err := newBench(plan{rounds: 2, calls: turn, callers: 4, ports: 2}, t.TempDir(), build(t), "")
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := b.close(); err != nil {
			t.Error(err)
		}
	}()
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
	defer cancel()
	leases, err := b.growLeases(ctx, []int{0, 20})
	if err != nil {
		t.Fatal(err)
	}
	ports, err := b.growPorts(ctx, []int{2, 4})
	if err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	if err := writeCurves(&text, "a day\na machine\n", append(leases, ports...)); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(text.String(), "# a day\n# a machine\nwhat,") {
		t.Errorf("the curves do not say what they were taken on:\n%s", &text)
	}
	curves := csv.NewReader(strings.NewReader(text.String()))
	curves.Comment = '#'
	lines, err := curves.ReadAll()
	if err != nil || len(lines) != 1+2*5 {
		t.Errorf("%d lines, %v:\n%s", len(lines), err, &text)
	}
}
