package main

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"
)

// start is goal 7: how long after it was run ipamd gives addresses, as it
// tells a supervisor (sd_notify(3)), with many leases in its book and with
// none. There is no port on its bridge, so that the census is next to nothing;
// all else is in it, from the loading of the program on. The yardstick reads
// each row and column of the stopped ipamd's book once, through the same SQLite:
// of all its tables, as a start does, and of the leases alone. The goal's words
// allow both, so both have its limit.
func start(ctx context.Context, b *bench) (rows []row, err error) {
	filled, err := b.filledBook(ctx)
	if err != nil {
		return nil, err
	}
	d, err := b.startDaemonWith(ctx, "unfilled", 0, "none", "/nowhere")
	if err != nil {
		return nil, err
	}
	if err := d.stop(); err != nil {
		return nil, err
	}
	full := row{goal: 7, what: fmt.Sprintf("ready with %d leases / a plain scan of the book, all its tables, the history too", b.leases), most: 2}
	bare := row{goal: 7, what: fmt.Sprintf("ready with %d leases / a plain scan of its leases alone", b.leases), most: 2}
	empty := row{goal: 7, what: "ready with none / a plain scan of the book with leases"}
	for range b.restarts {
		var scan, few, with, without sample
		path := filepath.Join(b.dir, filled, "book.db")
		if err := first(
			scan.timed(func() error { return scanBook(ctx, path, "book", "pools", "leases", "changes", "tombstones") }),
			few.timed(func() error { return scanBook(ctx, path, "leases") }),
			b.restart(ctx, filled, &with),
			b.restart(ctx, "unfilled", &without)); err != nil {
			return []row{full, bare, empty}, err
		}
		full.add(with.p50(), scan.p50())
		bare.add(with.p50(), few.p50())
		empty.add(without.p50(), scan.p50())
	}
	return []row{full, bare, empty}, nil
}

// restart times how long ipamd takes until it is ready, and ends it again.
func (b *bench) restart(ctx context.Context, name string, took *sample) error {
	const env = "NOTIFY_SOCKET"
	path := filepath.Join(b.dir, name, "notify")
	told, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		return err
	}
	defer func() { _ = errors.Join(told.Close(), os.Remove(path)) }()
	if err := told.SetReadDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	var d *daemon
	err = took.timed(func() (err error) {
		if d, err = b.launch(name, env+"="+path); err != nil {
			return err
		}
		for text := make([]byte, 4096); ; {
			n, err := told.Read(text)
			if err != nil {
				return fmt.Errorf("wait until ipamd is ready: %w", err)
			}
			if bytes.Contains(text[:n], []byte("READY=1")) {
				return ctx.Err()
			}
		}
	})
	if d == nil {
		return err
	}
	return errors.Join(err, d.stop())
}

// scanBook reads tables of a book that nobody has open.
func scanBook(ctx context.Context, path string, tables ...string) (err error) {
	book, err := sql.Open("sqlite", "file:"+path+"?immutable=1") // netdb brings the driver
	if err != nil {
		return err
	}
	defer func() { err = first(err, book.Close()) }()
	for _, table := range tables {
		if err := scanTable(ctx, book, table); err != nil {
			return fmt.Errorf("scan %s: %w", table, err)
		}
	}
	return nil
}

func scanTable(ctx context.Context, book *sql.DB, table string) error {
	rows, err := book.QueryContext(ctx, `SELECT * FROM `+table)
	if err != nil {
		return err
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		return err
	}
	values := make([]any, len(columns))
	for i := range values {
		values[i] = new(sql.RawBytes)
	}
	for rows.Next() {
		if err := rows.Scan(values...); err != nil {
			return err
		}
	}
	return rows.Err()
}
