package netdb

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/ipamd/ipamd/netdb/sqlite"
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
	err := sqlite.EachText(ctx, h.store.Readers, changesBehind, func(row string) (err error) {
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
		if one, err = h.read(ctx, h.store.Readers, `WHERE rev = ?1`, out[i].Rev); err == nil && len(one) == 0 {
			return nil, &PrunedError{since, out[i].Rev} // in between
		} else if err == nil {
			out[i] = one[0]
		}
	}
	return out, h.store.Classify("read the history", err)
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
