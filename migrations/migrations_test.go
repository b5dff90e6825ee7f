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
		"0001_book.sql": "49edbfa83edf5e8dac5878aedaf0959d7ebb8a5aea07e8eef4f5ca3f55852d9b",
	}
	for _, m := range All() {
		sum := sha256.Sum256([]byte(m.SQL))
		if got := hex.EncodeToString(sum[:]); released[m.Name] != got {
			t.Errorf("%s has the sum %s, and was released with %q", m.Name, got, released[m.Name])
		}
	}
}
