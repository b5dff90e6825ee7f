package netdb

import (
	"context"
	"fmt"
	"time"

	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/netdb/sqlite"
)

// A tombstone stands for the attempts of a sandbox uid, up to one, of which no allocation may follow.
type tombstone struct {
	attempt int64
	rev     int64
	at      ipam.Stamp
}

// bury sets a sandbox uid's tombstone.
func (x *index) bury(uid string, stone tombstone) {
	x.unbury(uid)
	x.tombs[uid] = stone
	x.stones.Set(stone.rev, uid)
}

func (x *index) unbury(uid string) {
	x.stones.Delete(x.tombs[uid].rev)
	delete(x.tombs, uid)
}

// MaxTombstones bounds the tombstones that the book keeps in its file and in memory,
// with their uids and what finds them some tens of MiB at most: each stands for
// [Options.Tombstone], and a caller that cancels without end makes thousands a
// second.
const MaxTombstones = 1 << 16

// Cancel leaves a tombstone: attempts of the sandbox uid up to this one are
// refused while it stands, also those whose Allocate arrives later. Open
// leases of such attempts are released; they come back. Where the tombstone
// stands already and no lease is open, nothing is written. One more than
// [MaxTombstones] is [ipam.ErrTombstones]: a tombstone that was acknowledged stands for its
// time. The open leases are released all the same and come back beside that error, so
// that a caller that ends what it has by cancelling never keeps it.
func (b *Book) Cancel(ctx context.Context, who ipam.Who, uid string, attempt int64) ([]*ipam.Lease, error) {
	if err := ipam.CheckName("uid", uid); err != nil {
		return nil, err
	}
	if attempt < 1 {
		return nil, ipam.Invalid("attempt", "%d is below 1", attempt)
	}
	var full error
	out, err := change(ctx, b.writer, func(t *tx) (out []*ipam.Lease, err error) {
		full = nil
		if old := t.tomb(uid); old.attempt < attempt || t.now.Since(old.at) >= t.opts.Tombstone {
			if old.attempt == 0 && t.tombsFull() {
				full = fmt.Errorf("cancel sandbox %q: %w: %d", uid, ipam.ErrTombstones, t.idx.mostTombs)
			} else {
				c := t.change(ipam.OfAttempt, who)
				c.UID, c.Attempt, c.From, c.To = uid, attempt, ipam.Free, ipam.Cancelled
				t.staged.stage(step{tomb: uid, stone: tombstone{attempt, c.Rev, t.now}, change: c})
			}
		}
		for _, l := range t.openOf(uid) {
			if l.Attempt > attempt {
				continue
			}
			freed, err := t.setState(who, l, ipam.Releasing, nil)
			if err != nil {
				return nil, err
			}
			out = append(out, freed)
		}
		return out, nil
	})
	if err != nil {
		return nil, err
	}
	return out, full
}

// tombsFull reports that one more tombstone is too many. One that stands no
// longer is pruned behind the changes to come, and keeps no room meanwhile.
func (t *tx) tombsFull() bool {
	if len(t.idx.tombs)+len(t.staged.tombs) < t.idx.mostTombs {
		return false
	}
	_, oldest, ok := t.idx.stones.Min()
	return !ok || t.now.Since(t.idx.tombs[oldest].at) < t.opts.Tombstone
}

func (t *tx) tomb(uid string) tombstone {
	return look(uid, t.staged.tombs, t.idx.tombs)
}

// cancelled reports that a tombstone of an attempt, or of a later one, stands.
func (t *tx) cancelled(uid string, attempt int64) bool {
	stone := t.tomb(uid)
	return stone.attempt >= attempt && t.now.Since(stone.at) < t.opts.Tombstone
}

const (
	readTombs  = `SELECT uid, attempt, rev, wall, boottime, boot_id FROM tombstones`
	upsertTomb = `INSERT INTO tombstones (uid, attempt, rev, wall, boottime, boot_id) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
		ON CONFLICT (uid) DO UPDATE SET (attempt, rev, wall, boottime, boot_id) = (?2, ?3, ?4, ?5, ?6)`
)

func (t *tombstone) row(uid string) []any {
	return []any{uid, t.attempt, t.rev, t.at.Wall.UnixNano(), int64(t.at.Boottime), t.at.BootID}
}

func scanTomb(s sqlite.Scanner) (uid string, t tombstone, err error) {
	var wall, boot int64
	err = s.Scan(&uid, &t.attempt, &t.rev, &wall, &boot, &t.at.BootID)
	t.at.Wall, t.at.Boottime = time.Unix(0, wall), time.Duration(boot)
	return uid, t, err
}
