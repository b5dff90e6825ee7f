package peers

import (
	"context"
	"database/sql"
	"fmt"
	"net/netip"
	"path/filepath"
	"testing"
	"time"

	_ "modernc.org/sqlite"
)

// A predecessor is how the runner's addresses were given before ipamd: a table
// of addresses, walked from the first one on, with two queries a candidate:
// is it leased, is it held back. It commits to a WAL without a sync, and a
// release holds nothing back, which spares the walk what a cooldown would add.
type predecessor struct {
	db     *sql.DB
	prefix netip.Prefix
}

const (
	predecessorSchema = `
CREATE TABLE leases (id INTEGER PRIMARY KEY, ip TEXT NOT NULL UNIQUE, sandbox TEXT NOT NULL, at INTEGER NOT NULL);
CREATE TABLE holds (id INTEGER PRIMARY KEY, ip TEXT NOT NULL UNIQUE, until INTEGER NOT NULL);`
	insertLease = "INSERT INTO leases (ip, sandbox, at) VALUES (?, ?, ?)"
)

// Predecessor makes its database below dir.
func Predecessor(t testing.TB, dir string, prefix netip.Prefix, taken int) Store {
	db, err := sql.Open("sqlite", "file:"+filepath.Join(dir, "net.db")+
		"?_pragma=journal_mode(WAL)&_pragma=synchronous(NORMAL)&_txlock=immediate")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	db.SetMaxOpenConns(1) // several wait for each other in SQLite, and longer
	p := &predecessor{db, prefix}
	if _, err = db.Exec(predecessorSchema); err == nil {
		err = p.inTx(func(tx *sql.Tx) error {
			for _, addr := range takenOf(prefix, taken) {
				if _, err := tx.Exec(insertLease, addr.String(), "taken", time.Now().Unix()); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func (p *predecessor) inTx(fn func(*sql.Tx) error) error {
	tx, err := p.db.BeginTx(context.Background(), nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() // after a commit it does nothing
	if err := fn(tx); err != nil {
		return err
	}
	return tx.Commit()
}

func (p *predecessor) Allocate(sandbox string) (got netip.Addr, err error) {
	return got, p.inTx(func(tx *sql.Tx) error {
		now := time.Now().Unix()
		for got = First(p.prefix); p.prefix.Contains(got.Next()); got = got.Next() {
			var leased, held int
			if err := tx.QueryRow("SELECT COUNT(*) FROM leases WHERE ip = ?", got.String()).Scan(&leased); err != nil {
				return err
			}
			if err := tx.QueryRow("SELECT COUNT(*) FROM holds WHERE ip = ? AND until > ?", got.String(), now).Scan(&held); err != nil {
				return err
			}
			if leased+held == 0 {
				_, err := tx.Exec(insertLease, got.String(), sandbox, now)
				return err
			}
		}
		return fmt.Errorf("no address of %s is free", p.prefix)
	})
}

func (p *predecessor) Undo(_ string, addr netip.Addr) error {
	return p.inTx(func(tx *sql.Tx) error {
		_, err := tx.Exec("DELETE FROM leases WHERE ip = ?", addr.String())
		return err
	})
}
