package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
)

// A Querier is a connection, or what has some.
type Querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// A Scanner is one row.
type Scanner interface{ Scan(dest ...any) error }

// Each calls row with every row of a query, until it returns an error.
func Each(ctx context.Context, q Querier, query string, row func(Scanner) error, args ...any) error {
	rows, err := q.QueryContext(ctx, query, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := row(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

// EachText is [Each] of a query with one column of text, read from the driver itself: for each
// value database/sql converts and copies.
func EachText(ctx context.Context, db *sql.DB, query string, row func(string) error, args ...int64) (err error) {
	conn, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	named := make([]driver.NamedValue, len(args))
	for i, v := range args {
		named[i] = driver.NamedValue{Ordinal: i + 1, Value: v}
	}
	return conn.Raw(func(c any) (err error) {
		rows, err := c.(driver.QueryerContext).QueryContext(ctx, query, named)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, rows.Close()) }()
		for value := make([]driver.Value, 1); ; {
			switch err := rows.Next(value); {
			case err == io.EOF:
				return nil
			case err != nil:
				return err
			}
			text, ok := value[0].(string)
			if !ok {
				return fmt.Errorf("a row is %T, and no text", value[0])
			}
			if err := row(text); err != nil {
				return err
			}
		}
	})
}
