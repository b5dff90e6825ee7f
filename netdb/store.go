package netdb

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/ipamd/ipamd/internal/elapsed"
	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/netdb/group"
	"github.com/ipamd/ipamd/netdb/index"
	"github.com/ipamd/ipamd/netdb/sqlite"
)

// A store is the file of a book, and what it says of itself: whose it is, and of when. Its fields are
// set while it is opened; what writes belongs to the lock holder of the [writer].
type store struct {
	*sqlite.File
	opts  *Options
	clock *elapsed.Clock
	continuity
	identity atomic.Pointer[ipam.BookIdentity] // whose it is; the lock holder's to change
	sql      statements
}

func (s *store) shut() error { return errors.Join(s.sql.close(), s.File.Shut()) }

// writeLeaseRow stores what a step does to a table beside the leases. what names a row of it.
func writeLeaseRow[T any](s *store, b index.LeaseRow[T], what string, upsert, end *sql.Stmt, columns func(*T) []any) error {
	if b.EndedLeaseID != "" {
		if _, err := end.Exec(b.EndedLeaseID); err != nil {
			return s.Classify("end the "+what+" of "+b.EndedLeaseID, err)
		}
	}
	if b.Row != nil {
		if _, err := upsert.Exec(columns(b.Row)...); err != nil {
			return s.Classify("store the "+what+" of "+b.LeaseID, err)
		}
	}
	return nil
}

// statements are bound to the one connection that writes: BEGIN and COMMIT as
// unprepared calls add 40-60 µs to each commit.
type statements struct {
	begin, commit, rollback                                               *sql.Stmt
	insertLease, updateLease, replaceLease, deleteLease                   *sql.Stmt
	insertChange, upsertPool, upsertTombstone, pruneRows, pruneTombstones *sql.Stmt
	removePool, upsertName, withhold, unwithhold                          *sql.Stmt
	noteRuntime, takeOver, touch, untouch                                 *sql.Stmt
	insertHostName, endHostName, pruneHostNames, upsertSleep, deleteSleep *sql.Stmt
	upsertSlot, deleteSlot                                                *sql.Stmt

	all []*sql.Stmt
}

func (o *opening) prepare(ctx context.Context) error {
	if o.opts.ReadOnly {
		return nil
	}
	for stmt, text := range map[**sql.Stmt]string{
		&o.sql.begin:           `BEGIN IMMEDIATE`,
		&o.sql.commit:          `COMMIT`,
		&o.sql.rollback:        `ROLLBACK`,
		&o.sql.insertLease:     insertLease,
		&o.sql.updateLease:     updateLease,
		&o.sql.replaceLease:    replaceLease,
		&o.sql.deleteLease:     deleteLease,
		&o.sql.insertChange:    insertChange,
		&o.sql.upsertPool:      upsertPool,
		&o.sql.upsertTombstone: upsertTombstone,
		&o.sql.removePool:      `DELETE FROM pools WHERE uid = ?1`,
		&o.sql.upsertName:      upsertPoolName,
		&o.sql.withhold:        insertWithheld,
		&o.sql.unwithhold:      `DELETE FROM withheld WHERE ip = ?1`,
		&o.sql.pruneRows:       `DELETE FROM changes WHERE rev <= ?1`,
		&o.sql.pruneTombstones: `DELETE FROM tombstones WHERE uid = ?1`,
		&o.sql.noteRuntime:     `UPDATE book SET runtime_id = ?1`,
		&o.sql.takeOver:        `UPDATE book SET (epoch, runner_uid, machine_id, boot_id) = (?1, ?2, ?3, ?4)`,
		&o.sql.touch:           `UPDATE book SET boot_id = boot_id || ' '`,
		&o.sql.untouch:         `UPDATE book SET boot_id = rtrim(boot_id)`,
		&o.sql.insertHostName:  insertHostName,
		&o.sql.endHostName:     endHostName,
		&o.sql.pruneHostNames:  pruneHostNames,
		&o.sql.upsertSleep:     upsertSleep,
		&o.sql.deleteSleep:     deleteSleep,
		&o.sql.upsertSlot:      upsertSlot,
		&o.sql.deleteSlot:      deleteSlot,
	} {
		prepared, err := o.Conn.PrepareContext(ctx, text)
		if err != nil {
			return o.Classify("prepare", err)
		}
		*stmt, o.sql.all = prepared, append(o.sql.all, prepared)
	}
	return nil
}

func (s *statements) close() error {
	var errs []error
	for _, stmt := range s.all {
		errs = append(errs, stmt.Close())
	}
	return errors.Join(errs...)
}

// write stores a batch durably.
func (s *store) write(steps []index.Step) error {
	for i := range steps {
		if err := s.writeStep(&steps[i]); err != nil {
			return err
		}
		s.opts.failpoint("store")
	}
	_, err := s.sql.commit.Exec()
	return s.Classify("commit", err)
}

func (s *store) writeStep(st *index.Step) error {
	what := st.Change.Addr.String()
	var res sql.Result
	var err error
	switch {
	case st.PoolRemoved:
		what = "the end of pool " + st.Pool.Name
		res, err = s.sql.removePool.Exec(st.Pool.UID)
	case st.Pool != nil:
		what = "pool " + st.Pool.Name
		res, err = s.sql.upsertPool.Exec(poolRow(st.Pool)...)
	case st.PoolName != nil:
		what = "the name of pool " + st.PoolName.Name
		res, err = s.sql.upsertName.Exec(poolNameRow(st.PoolName)...)
	case st.TombstoneUID != "":
		what = "tombstone"
		res, err = s.sql.upsertTombstone.Exec(tombstoneRow(st.TombstoneUID, st.Tombstone)...)
	case st.Identity != nil:
		what = "whose it is"
		res, err = s.sql.takeOver.Exec(st.Identity.Epoch, st.Identity.RunnerUID, st.Identity.MachineID, s.Boot)
	case st.Runtime != "":
		what = "runtime " + st.Runtime
		res, err = s.sql.noteRuntime.Exec(st.Runtime)
	case st.Withheld != nil && st.Old == nil && st.Now == nil:
		res, err = s.sql.withhold.Exec(withheldRow(st.Withheld)...)
	case st.Old == nil:
		res, err = s.sql.insertLease.Exec(leaseRow(st.Now)...)
	case st.Now == nil:
		res, err = s.sql.deleteLease.Exec(fenceOf(st.Old)...)
	case st.Now.ID == st.Old.ID:
		res, err = s.sql.updateLease.Exec(append(otherValues(st.Now), fenceOf(st.Old)...)...)
	default:
		res, err = s.sql.replaceLease.Exec(slices.Concat([]any{st.Now.ID}, otherValues(st.Now), fenceOf(st.Old))...)
	}
	if err != nil {
		return s.Classify("store "+what, err)
	}
	if n, err := res.RowsAffected(); err != nil || n != 1 {
		return fmt.Errorf("store %s: %w: the row is not as it was read", what, ipam.ErrStale)
	}
	if st.Pool != nil && st.PoolName != nil {
		if _, err := s.sql.upsertName.Exec(poolNameRow(st.PoolName)...); err != nil {
			return s.Classify("store the name of "+what, err)
		}
	}
	if w := st.Withheld; w != nil && (st.Old != nil || st.Now != nil) {
		if st.Now == nil {
			_, err = s.sql.withhold.Exec(withheldRow(w)...)
		} else {
			_, err = s.sql.unwithhold.Exec(key(w.Addr))
		}
		if err != nil {
			return s.Classify("store that "+what+" is withheld", err)
		}
	}
	if err := s.writeNames(st); err != nil {
		return err
	}
	if err := writeLeaseRow(s, st.Sleep, "sleep", s.sql.upsertSleep, s.sql.deleteSleep, sleepRow); err != nil {
		return err
	}
	if err := writeLeaseRow(s, st.Slot, "slot", s.sql.upsertSlot, s.sql.deleteSlot, slotRow); err != nil {
		return err
	}
	_, err = s.sql.insertChange.Exec(changeRow(st.Change, st.Now, s.clock.Uptime())...)
	return s.Classify("record "+what, err)
}

// finish runs fn in the transaction that has begun, and commits.
func (s *store) finish(fn func() error) error {
	err := group.Safely(fn)
	if err == nil {
		_, err = s.sql.commit.Exec()
	}
	if err != nil {
		_, _ = s.sql.rollback.Exec() // SQLite may have taken it back by itself
	}
	return err
}
