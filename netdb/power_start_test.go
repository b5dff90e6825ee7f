package netdb_test

import (
	"errors"
	"os"
	"syscall"
	"testing"

	"github.com/ipamd/ipamd/internal/faultfs"
	"github.com/ipamd/ipamd/netdb"
	. "github.com/ipamd/ipamd/netdb/netdbtest"
)

// L16: the folder of the book cannot be synced, so a power loss would take
// away the names of what a start makes in it, with all that is acknowledged
// there. SQLite does not mind; the book refuses to open. Once the disk is well
// it opens, and what it acknowledges stays.
func TestL16AFolderThatCannotBeSynced(t *testing.T) {
	for name, before := range map[string]func(*testing.T, *life){
		"a new book": nil,
		"one that was closed": func(t *testing.T, l *life) {
			l.open(t)
			Pool(t, l.book, "default", "10.8.64.0/24")
			Close(t, l.book)
		},
		"one whose start was killed before its first change": func(t *testing.T, l *life) {
			l.open(t)
			Pool(t, l.book, "default", "10.8.64.0/24")
			Close(t, l.book)
			if err := os.WriteFile(l.path()+"-wal", nil, 0o600); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := &life{disk: faultfs.Mount(t, "book.db-shm"), opts: Options()}
			if before != nil {
				before(t, l)
			}
			l.disk.Inject(func(op faultfs.Op) (f faultfs.Fault) {
				if op.Kind == faultfs.SyncDir {
					f.Err = syscall.EIO
				}
				return f
			})
			b, err := netdb.Open(l.path(), l.opts)
			if !errors.Is(err, syscall.EIO) {
				t.Errorf("a folder that cannot be synced: %v", err)
			}
			if err == nil {
				Close(t, b)
			}
			l.disk.Inject(nil)
			l.open(t)
			if before == nil {
				Pool(t, l.book, "default", "10.8.64.0/24")
			}
			Reserve(t, l.book, "a")
			l.note()
			l.wantDurable(t)
		})
	}
}
