package main

import (
	"os"
	"path/filepath"
	"testing"
)

func TestTheMeasuredPartIsWrittenAnew(t *testing.T) {
	path := filepath.Join(t.TempDir(), "b.md")
	if err := os.WriteFile(path, []byte("before\n"+measuredBegin+"\nold\n"+measuredEnd+"\nafter\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	tables := []table{{{"a", "b"}, {"1|2", "<= 2"}}, {{"c"}, {"3"}}}
	const want = "before\n" + measuredBegin + "\n\n```\nfast\n```\n\n| a | b |\n|---|---|\n| 1&#124;2 | &lt;= 2 |\n\n| c |\n|---|\n| 3 |\n\n" + measuredEnd + "\nafter\n"
	for range 2 {
		if err := rewrite(path, "fast\n", tables); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != want {
			t.Errorf("%v: %s\nwant %s", err, got, want)
		}
	}
	if err := os.WriteFile(path, []byte(measuredBegin), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := rewrite(path, "fast\n", tables); err == nil {
		t.Error("a document without an end was written")
	}
}

func TestFiguresAreShort(t *testing.T) {
	for f, want := range map[float64]string{0.00071: "0.0007", 0.144: "0.14", 1.634: "1.63", 12.34: "12.3", 1862.4: "1862", 502944: "502944"} {
		if got := short(f); got != want {
			t.Errorf("%v: %s, want %s", f, got, want)
		}
	}
}
