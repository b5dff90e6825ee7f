package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"time"

	_ "modernc.org/sqlite"
)

// A predecessor is how the runner's addresses were given before ipamd: a table
// of addresses, walked from the first one on, with two queries a candidate:
// is it leased, is it held back. It commits to a WAL without a sync.
//
// Only the algorithm is here. A release holds nothing back, which spares the
// walk what the cooldown would add.
type predecessor struct {
	db     *sql.DB
	prefix netip.Prefix
}

const predecessorSchema = `
CREATE TABLE leases (id INTEGER PRIMARY KEY, ip TEXT NOT NULL UNIQUE, sandbox TEXT NOT NULL, at INTEGER NOT NULL);
CREATE TABLE holds (id INTEGER PRIMARY KEY, ip TEXT NOT NULL UNIQUE, until INTEGER NOT NULL);`

func openPredecessor(ctx context.Context, dir string, prefix netip.Prefix, taken int) (_ store, err error) {
	db, err := sql.Open("sqlite", "file:"+filepath.Join(dir, "net.db")+
		"?_pragma=journal_mode(WAL)&_pragma=synchronous(NORMAL)&_txlock=immediate")
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1) // more of them wait for each other in SQLite, and longer
	defer func() {
		if err != nil {
			err = errors.Join(err, db.Close())
		}
	}()
	if _, err := db.ExecContext(ctx, predecessorSchema); err != nil {
		return nil, err
	}
	p := &predecessor{db: db, prefix: prefix}
	err = p.inTx(ctx, func(tx *sql.Tx) error {
		insert, err := tx.PrepareContext(ctx, insertLease)
		if err != nil {
			return err
		}
		defer insert.Close()
		for _, addr := range takenOf(prefix, taken) {
			if _, err := insert.ExecContext(ctx, addr.String(), "taken", time.Now().Unix()); err != nil {
				return err
			}
		}
		return nil
	})
	return p, err
}

const insertLease = "INSERT INTO leases (ip, sandbox, at) VALUES (?, ?, ?)"

func (p *predecessor) inTx(ctx context.Context, fn func(*sql.Tx) error) error {
	tx, err := p.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if err := fn(tx); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

func (p *predecessor) allocate(ctx context.Context, sandbox string) (got netip.Addr, err error) {
	err = p.inTx(ctx, func(tx *sql.Tx) error {
		now := time.Now().Unix()
		for addr := gatewayOf(p.prefix).Next(); p.prefix.Contains(addr.Next()); addr = addr.Next() {
			free, err := p.free(ctx, tx, addr.String(), now)
			if err != nil {
				return err
			}
			if free {
				got = addr
				_, err := tx.ExecContext(ctx, insertLease, addr.String(), sandbox, now)
				return err
			}
		}
		return fmt.Errorf("no address of %s is free", p.prefix)
	})
	return got, err
}

// free asks the two questions about a candidate.
func (p *predecessor) free(ctx context.Context, tx *sql.Tx, ip string, now int64) (bool, error) {
	var leased, held int
	if err := tx.QueryRowContext(ctx, "SELECT COUNT(*) FROM leases WHERE ip = ?", ip).Scan(&leased); err != nil {
		return false, err
	}
	if err := tx.QueryRowContext(ctx, "SELECT COUNT(*) FROM holds WHERE ip = ? AND until > ?", ip, now).Scan(&held); err != nil {
		return false, err
	}
	return leased == 0 && held == 0, nil
}

func (p *predecessor) release(ctx context.Context, _ string, addr netip.Addr) error {
	return p.inTx(ctx, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "DELETE FROM leases WHERE ip = ?", addr.String())
		return err
	})
}

func (p *predecessor) close() error { return p.db.Close() }
