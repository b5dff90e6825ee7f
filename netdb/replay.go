package netdb

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// A replay reads every change there is, so what a column costs counts: SQLite locks and
// copies for each, the driver and database/sql convert each. changesBehind therefore has a
// row's columns joined into one, and is read from the driver itself.
const changesBehind = `SELECT concat_ws(char(31), ` + changeColumns + `) FROM changes WHERE rev > ?1 AND rev <= ?2 ORDER BY rev LIMIT ?3`

// between is what lies between two columns: char(31).
const between = '\x1f'

var numberOfColumns = strings.Count(changeColumns, ",") + 1

// behind reads up to limit changes behind since, and none above upTo.
func (h *history) behind(ctx context.Context, since, upTo int64, limit int) ([]Change, error) {
	out, apart := make([]Change, 0, min(int64(limit), upTo-since)), []int(nil)
	cut := make(joined, 0, numberOfColumns)
	err := eachText(ctx, h.store.readers, changesBehind, func(row string) (err error) {
		if len(out) == cap(out) {
			return fmt.Errorf("more than %d changes behind revision %d", cap(out), since) // rev is the primary key
		}
		out = out[:len(out)+1]
		c := &out[len(out)-1]
		if cut = cut.of(row); len(cut) != numberOfColumns {
			apart = append(apart, len(out)-1) // a name has what lies between two columns
			c.Rev, err = strconv.ParseInt(cut[0], 10, 64)
			return err
		}
		return c.scan(cut)
	}, since, upTo, int64(limit))
	for _, i := range apart {
		if err != nil {
			break
		}
		var one []Change
		if one, err = h.read(ctx, h.store.readers, `WHERE rev = ?1`, out[i].Rev); err == nil && len(one) == 0 {
			return nil, &PrunedError{since, out[i].Rev} // in between
		} else if err == nil {
			out[i] = one[0]
		}
	}
	return out, h.store.classify("read the history", err)
}

// eachText is [each] of a query with one column of text.
func eachText(ctx context.Context, db *sql.DB, query string, row func(string) error, args ...int64) (err error) {
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

// joined are the columns of a row that was read as one.
type joined []string

// of cuts a row, in the place of the one before.
func (j joined) of(row string) joined {
	j = j[:0]
	for {
		i := strings.IndexByte(row, between)
		if i < 0 {
			return append(j, row)
		}
		j, row = append(j, row[:i]), row[i+1:]
	}
}

// Scan is for integers and text.
func (j joined) Scan(dest ...any) (err error) {
	for i, d := range dest {
		switch d := d.(type) {
		case *string:
			*d = j[i]
		case *int64:
			if *d, err = strconv.ParseInt(j[i], 10, 64); err != nil {
				return fmt.Errorf("column %d: %w", i+1, err)
			}
		default:
			return fmt.Errorf("column %d is no %T", i+1, d)
		}
	}
	return nil
}
