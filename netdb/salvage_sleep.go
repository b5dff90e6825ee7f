package netdb

import (
	"context"
	"strings"
	"time"
)

// A CancelledAttempt is one of which no allocation may follow, nor one of an attempt
// before it, for [Options.Tombstone] since At.
type CancelledAttempt struct {
	UID     string
	Attempt int64
	At      Stamp
}

// readCancelled reads the tombstones of a copy. What cannot be read is a problem, and no
// error.
func (s *Salvaged) readCancelled(ctx context.Context, c *bookCopy) {
	if c.old {
		return
	}
	had := make(map[string]bool)
	s.bothWays(ctx, c, "tombstones", `SELECT uid, attempt, wall, boottime, boot_id FROM tombstones ORDER BY uid`, func(sc scanner) error {
		var t CancelledAttempt
		var wall, boot int64
		switch err := sc.Scan(&t.UID, &t.Attempt, &wall, &boot, &t.At.BootID); {
		case err != nil:
			s.problem("read a cancelled attempt", err)
		case !had[t.UID]:
			had[t.UID] = true
			t.At.Wall, t.At.Boottime = time.Unix(0, wall), time.Duration(boot)
			s.Cancelled = append(s.Cancelled, t)
		}
		return nil
	})
}

// readSleeps reads how paused sandboxes sleep. What cannot be read is a problem, and no error.
func (s *Salvaged) readSleeps(ctx context.Context, c *bookCopy, schema int) {
	s.Sleeps = make(map[string]*Sleep)
	if c.old || schema < 5 {
		return // a book of then has none
	}
	query := readSleeps
	if !c.schema.has("sleeps", "still") {
		query = strings.Replace(query, "still", "1", 1)
	}
	s.bothWays(ctx, c, "sleeps", query+` ORDER BY lease_id`, func(sc scanner) error {
		switch how, bad, err := scanSleep(sc); {
		case err != nil:
			s.problem("read a sleep", err)
		case bad != nil:
			s.problem("read the sleep of lease "+how.LeaseID, bad)
		default:
			s.Sleeps[how.LeaseID] = how
		}
		return nil
	})
}
