package nearest

import "testing"

func TestTo(t *testing.T) {
	known := []string{"cooldown", "cooldown_min", "mtu", "prefix", "exhausted"}
	for name, want := range map[string]string{
		"coldown":     "cooldown",
		"cooldwn_min": "cooldown_min",
		"Prefix":      "prefix",
		"exausted":    "exhausted",
		"mut":         "mtu",
		"cooldown":    "cooldown",
		"":            "", // three edits are too many for three letters
		"gateway":     "",
		"verbosity":   "",
	} {
		got, ok := To(name, known)
		if ok != (want != "") || ok && got != want {
			t.Errorf("%q is near %q, %v; want %q", name, got, ok, want)
		}
	}
	if _, ok := To("x", nil); ok {
		t.Error("something is near to nothing")
	}
}

func TestEdits(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"", "abc", 3}, {"abc", "", 3}, {"kitten", "sitting", 3}, {"flaw", "lawn", 2}, {"same", "same", 0}, {"ab", "ba", 2}} {
		if got := edits(c.a, c.b); got != c.want {
			t.Errorf("from %q to %q takes %d edits, not %d", c.a, c.b, c.want, got)
		}
	}
}
