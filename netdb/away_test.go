package netdb_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/netdb"
	. "github.com/ipamd/ipamd/netdb/netdbtest"
)

// F16: a reading that was under way as the files went, and could not open them, reports after
// the commit that found out. That is no sign that they are back: no change is begun, and once
// they are back none that was refused has been made.
func TestF16WhatElseFailsBeginsNoChange(t *testing.T) {
	path := filepath.Join(t.TempDir(), "book.db")
	b := OpenAt(t, path, Options())
	Pool(t, b, "default", "10.8.64.0/24")
	a := Reserve(t, b, "a")
	move := func(from, to string) {
		t.Helper()
		for _, part := range []string{"", "-wal"} {
			if err := os.Rename(path+part+from, path+part+to); err != nil {
				t.Fatal(err)
			}
		}
	}
	move("", ".away")
	_, err := TryReserve(b, b.Pools()[0], "finds out", Policy) // and may be made
	wantErr(t, err, netdb.ErrMoved)
	before := b.Rev()
	b.CannotWrite(fmt.Errorf("read the history: %w: unable to open database file", netdb.ErrReadOnly))
	_, err = b.Release(ctx, client, a.ID, "", 0)
	wantErr(t, err, netdb.ErrMoved)
	if rev := b.Rev(); rev != before {
		t.Errorf("it is at revision %d, and was at %d", rev, before)
	}
	wantErr(t, b.Info().ReadOnly, netdb.ErrMoved)
	move(".away", "")
	if err := b.Retry(ctx); err != nil {
		t.Fatal(err)
	}
	if now, err := b.Lease(a.ID); err != nil || now.State != ipam.Reserved {
		t.Errorf("the lease whose release was refused: %+v, %v", now, err)
	}
}
