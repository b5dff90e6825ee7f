package feed

import (
	"bytes"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/ipamd/ipamd/ipam"
)

// Whatever kinds a reader has, it is given their lines, whole and in their order, and those
// that lie behind one another in one part: what was encoded once is not copied.
func TestJoin(t *testing.T) {
	t.Parallel()
	kinds := []ipam.Subject{ipam.OfLease, ipam.OfAttempt, ipam.OfPool, ipam.OfBook}
	f := New(nil, encode)
	for range 200 {
		var changes []ipam.Change
		for i := range 1 + rand.IntN(40) {
			changes = append(changes, ipam.Change{Rev: int64(i + 1), Subject: kinds[rand.IntN(len(kinds))]})
		}
		first, err := f.encodeAll(changes[:len(changes)/2], "")
		if err != nil {
			t.Fatal(err)
		}
		second, err := f.encodeAll(changes[len(changes)/2:], "")
		if err != nil {
			t.Fatal(err)
		}
		lines := append(first, second...)[rand.IntN(len(changes)):]
		of := map[ipam.Subject]bool{kinds[rand.IntN(4)]: true, kinds[rand.IntN(4)]: true}
		var want []byte
		runs, open := 0, false
		for _, l := range lines {
			if of[l.Subject] {
				want = append(want, l.JSON...)
				if !open || l.Revision == second[0].Revision {
					runs++
				}
			}
			open = of[l.Subject]
		}
		parts := Join(lines, func(s ipam.Subject) bool { return of[s] })
		if got := bytes.Join(parts, nil); !bytes.Equal(got, want) || len(parts) != runs {
			t.Fatalf("%d parts %q, and should be %d of %q", len(parts), got, runs, want)
		}
	}
}

// What readers of old changes take ahead is bounded for all of them together, and is given
// back with the reader: they take less at a time then, and miss nothing.
func TestAheadIsBounded(t *testing.T) {
	t.Parallel()
	b, _ := open(t, 0)
	churn(t, b, 2000)
	long := strings.Repeat("x", 4<<10)
	f := New(b, func(line []byte, _ *ipam.Change, _ string) ([]byte, error) { return append(line, long...), nil })
	var readers []*Reader
	for range 6 {
		r := read(t, f, 0)
		readers = append(readers, r)
		lines, err := r.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if lines[0].Revision != 1 || r.At() != int64(len(lines)) {
			t.Errorf("it was given %d lines from revision %d, and is at %d", len(lines), lines[0].Revision, r.At())
		}
	}
	if most := int64(mostAhead + fillLines*len(long)); f.ahead.Load() > most || f.ahead.Load() == 0 {
		t.Errorf("%d bytes were taken ahead, and may be %d", f.ahead.Load(), most)
	}
	for _, r := range readers {
		for at := r.At(); at < 1500; {
			lines, err := r.Next(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, l := range lines {
				if at++; l.Revision != at {
					t.Fatalf("revision %d, and should be %d", l.Revision, at)
				}
			}
		}
		r.Close()
	}
	if left := f.ahead.Load(); left != 0 {
		t.Errorf("%d bytes are still held", left)
	}
}
