package ranges

import (
	"slices"
	"testing"
)

func parse(t *testing.T, text string) Range {
	t.Helper()
	r, err := Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestParse(t *testing.T) {
	for text, want := range map[string]struct{ is, size string }{
		"10.0.0.0/24":           {"10.0.0.0-10.0.0.255", "256"},
		"10.0.0.7/24":           {"10.0.0.0-10.0.0.255", "256"},
		"10.0.0.1":              {"10.0.0.1", "1"},
		"10.0.0.1-10.0.0.9":     {"10.0.0.1-10.0.0.9", "9"},
		" 10.0.0.1 - 10.0.0.9 ": {"10.0.0.1-10.0.0.9", "9"},
		"fd00::/64":             {"fd00::-fd00::ffff:ffff:ffff:ffff", "18446744073709551616"},
		"::/0":                  {"::-ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "340282366920938463463374607431768211456"},
	} {
		r := parse(t, text)
		if again := parse(t, r.String()); r.String() != want.is || r.Size().String() != want.size || again != r {
			t.Errorf("%q is %s, with %s addresses, and read again %s; want %v", text, r, r.Size(), again, want)
		}
	}
	for _, text := range []string{"", "x", "10.0.0.9-10.0.0.1", "10.0.0.1-fd00::1", "10.0.0.1-", "10.0.0.0/33"} {
		if r, err := Parse(text); err == nil {
			t.Errorf("%q is read as %s", text, r)
		}
	}
}

func TestBare(t *testing.T) {
	for text, want := range map[string]string{
		"10.0.0.7":             "10.0.0.7",
		"10.0.0.7/24":          "10.0.0.7",
		"::ffff:10.0.0.7/120":  "10.0.0.7",
		"fd00::7/64":           "fd00::7",
		"10.0.0.7/":            "10.0.0.7",
		"":                     "",
		"/24":                  "",
		"x":                    "",
		" 10.0.0.7":            "",
		"10.0.0.7-10.0.0.9":    "",
		"fe80::1%eth0":         "",
		"fe80::1%eth0/64":      "",
		"::ffff:10.0.0.7%eth0": "",
		"10.0.0.7/no length":   "10.0.0.7",
	} {
		a, err := Bare(text)
		if is := a.IsValid(); is != (want != "") || is != (err == nil) || is && a.String() != want {
			t.Errorf("%q is read as %s, %v; want %q", text, a, err, want)
		}
	}
}

func TestTwoRanges(t *testing.T) {
	for _, c := range []struct {
		a, b, clip string
		without    []string
	}{
		{"10.0.0.1-10.0.0.9", "10.0.0.9-10.0.0.12", "10.0.0.9", []string{"10.0.0.1-10.0.0.8"}},
		{"10.0.0.1-10.0.0.9", "10.0.0.3-10.0.0.4", "10.0.0.3-10.0.0.4", []string{"10.0.0.1-10.0.0.2", "10.0.0.5-10.0.0.9"}},
		{"10.0.0.1-10.0.0.9", "10.0.0.0/24", "10.0.0.1-10.0.0.9", nil},
		{"10.0.0.1-10.0.0.9", "10.0.0.10-10.0.0.12", "", []string{"10.0.0.1-10.0.0.9"}},
		{"0.0.0.0/0", "0.0.0.0-255.255.255.254", "0.0.0.0-255.255.255.254", []string{"255.255.255.255"}},
	} {
		a, b := parse(t, c.a), parse(t, c.b)
		part, some := a.Clip(b)
		if some != (c.clip != "") || some && part.String() != c.clip || a.Overlaps(b) != some || b.Overlaps(a) != some {
			t.Errorf("%s inside %s is %s, %v; they overlap: %v", a, b, part, some, a.Overlaps(b))
		}
		var left []string
		for _, r := range a.Without(b) {
			left = append(left, r.String())
		}
		if some && !slices.Equal(left, c.without) {
			t.Errorf("%s without %s is %v, want %v", a, b, left, c.without)
		}
	}
}
