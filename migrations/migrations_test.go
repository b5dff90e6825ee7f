package migrations

import (
	"crypto/sha256"
	"encoding/hex"
	"testing"
)

// A released file is never edited: books were made by it, and the next migration goes
// on from what it made.
func TestReleasedMigrationsAreFrozen(t *testing.T) {
	released := map[string]string{
		"0001_book.sql": "2319864e6f4dc5b9f109b32d2bd6d7f6c94a5858c1382dcebfd348294db0dea6",
	}
	for _, m := range All() {
		sum, want := sha256.Sum256([]byte(m.SQL)), released[m.Name]
		if got := hex.EncodeToString(sum[:]); want != "" && got != want {
			t.Errorf("%s has the sum %s, and was released with %s", m.Name, got, want)
		}
		delete(released, m.Name)
	}
	for name := range released {
		t.Errorf("%s is gone", name)
	}
}
