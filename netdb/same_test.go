package netdb_test

import (
	"path/filepath"
	"testing"

	"github.com/ipamd/ipamd/netdb"
	. "github.com/ipamd/ipamd/netdb/netdbtest"
)

// A lease that was read again, as after a commit that failed, is as it was: what waits for it,
// like a packet that could not begin a wake, knows it by the moment of its last move.
func TestAStampThatWasReadAgainIsTheSame(t *testing.T) {
	path, opts := filepath.Join(t.TempDir(), "book.db"), Options()
	opts.Now = netdb.Now
	b := OpenAt(t, path, opts)
	Pool(t, b, "default", "10.8.64.0/24")
	was, later := Reserve(t, b, "a"), Reserve(t, b, "b")
	Close(t, b)
	now, err := OpenAt(t, path, opts).Lease(was.ID)
	if err != nil || !now.Since.Same(was.Since) || now.Since.Same(later.Since) {
		t.Errorf("%+v was %+v, %v", now.Since, was.Since, err)
	}
	if now.Since == was.Since {
		t.Error("nothing is lost by being read: == would do")
	}
}
