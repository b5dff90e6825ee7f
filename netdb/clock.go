package netdb

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/ipamd/ipamd/internal/elapsed"
)

// A Stamp is [elapsed.Stamp]. What deals with a book's times has it by this name, and the
// clocks by [Now]; package elapsed is for netdb alone.
type Stamp = elapsed.Stamp

// Now is [elapsed.Now]: the machine's clocks. What a book has recorded is compared with
// [Book.Now].
func Now() Stamp { return elapsed.Now() }

// SameBoot is [elapsed.SameBoot].
func SameBoot(a, b string) bool { return elapsed.SameBoot(a, b) }

// resumeClock reads when the book last recorded something. A book that has
// nothing yet begins with the boot.
func (o *opening) resumeClock(ctx context.Context) error {
	var l elapsed.Last
	var wall, uptime, seen int64
	err := o.conn.QueryRowContext(ctx, `SELECT wall, uptime, boottime, boot_id FROM changes ORDER BY rev DESC LIMIT 1`).
		Scan(&wall, &uptime, &seen, &l.At.BootID)
	if errors.Is(err, sql.ErrNoRows) {
		return nil
	}
	if err != nil {
		return o.classify("read when the book was last changed", err)
	}
	l.At.Wall, l.At.Boottime, l.Uptime = time.Unix(0, wall), time.Duration(seen), time.Duration(uptime)
	o.clock.Resume(l)
	return nil
}
