package netdb

import (
	"github.com/ipamd/ipamd/internal/elapsed"
)

// A Stamp is [elapsed.Stamp]. What deals with a book's times has it by this name, and the
// clocks by [Now]; package elapsed is for netdb alone.
type Stamp = elapsed.Stamp

// Now is [elapsed.Now]: the machine's clocks. What a book has recorded is compared with
// [Book.Now].
func Now() Stamp { return elapsed.Now() }

// SameBoot is [elapsed.SameBoot].
func SameBoot(a, b string) bool { return elapsed.SameBoot(a, b) }
