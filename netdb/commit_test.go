package netdb_test

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ipamd/ipamd/internal/realtest"
	"github.com/ipamd/ipamd/netdb"
	. "github.com/ipamd/ipamd/netdb/netdbtest"
)

// A panic reaches the caller whose request it was, whoever happened to
// commit; neighbours in the batch are answered and the book goes on.
func TestAPanicIsItsCallersOwn(t *testing.T) {
	b := OpenAt(t, filepath.Join(t.TempDir(), "book.db"), Options())
	p := Pool(t, b, "default", "10.8.64.0/24")
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			bad := i%4 == 0
			name := string(rune('a' + i))
			c, err := b.Pick(p.UID, Policy)
			if err != nil {
				t.Error(err)
				return
			}
			defer b.Drop(c)
			defer func() {
				said, _ := recover().(string)
				if bad != strings.Contains(said, "witness of "+name) {
					t.Errorf("%s: panic %.80q", name, said)
				}
			}()
			r := netdb.Reservation{Candidate: c, Sandbox: name, UID: name, Interface: "eth0", Attempt: 1, BindWithin: time.Minute}
			if bad {
				r.Unseen = func() error { panic("witness of " + name) }
			}
			if _, err := b.Reserve(ctx, allocator, r); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
	wg.Wait()
	if u, _ := b.Usage(); u[0].ByState[netdb.Reserved] != 12 {
		t.Errorf("usage %+v", u[0])
	}
}

// A lock holder walks away when its caller does, and the next one in the
// line takes over.
func TestTheWriterLockIsHandedOn(t *testing.T) {
	path := filepath.Join(t.TempDir(), "book.db")
	b := OpenAt(t, path, Options())
	p := Pool(t, b, "default", "10.8.64.0/24")
	unlock := lockOut(t, path)
	reserve := func(ctx context.Context, name string) error {
		c, err := b.Pick(p.UID, Policy)
		if err != nil {
			return err
		}
		defer b.Drop(c)
		_, err = b.Reserve(ctx, allocator, netdb.Reservation{Candidate: c, Sandbox: name, UID: name, Interface: "eth0", Attempt: 1, BindWithin: time.Minute})
		return err
	}
	// The hasty come first, so that one of them holds the lock.
	hasty, goAway := context.WithCancel(ctx)
	var left, done sync.WaitGroup
	for range 8 {
		left.Go(func() {
			if err := reserve(hasty, "hasty"); !errors.Is(err, context.Canceled) {
				t.Errorf("a locked book answered a request with %v", err)
			}
		})
	}
	realtest.Eventually(t, wait, "one of eight hasty callers to hold the lock", func() bool {
		return b.Committing() && b.Waiting() == 8
	})
	patient := make([]error, 8)
	for i := range patient {
		done.Go(func() { patient[i] = reserve(ctx, "patient-"+string(rune('a'+i))) })
	}
	realtest.Eventually(t, wait, "eight patient callers", func() bool { return b.Waiting() == 16 })
	goAway()
	left.Wait()
	unlock()
	done.Wait()
	for i, err := range patient {
		if err != nil {
			t.Errorf("patient caller %d: %v", i, err)
		}
	}
}

// lockOut takes the book's write lock from another connection, as another
// process would, and returns what gives it back.
func lockOut(t *testing.T, path string) (unlock func()) {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	conn, err := db.Conn(ctx)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if _, err := conn.ExecContext(ctx, `BEGIN IMMEDIATE`); err != nil {
		t.Fatal(err)
	}
	return func() {
		t.Helper()
		if _, err := conn.ExecContext(ctx, `ROLLBACK`); err != nil {
			t.Error(err)
		}
	}
}
