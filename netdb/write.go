package netdb

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
)

// statements are bound to the one connection that writes: BEGIN and COMMIT as
// unprepared calls add 40-60 µs to each commit.
type statements struct {
	begin, commit, rollback                                               *sql.Stmt
	insertLease, updateLease, replaceLease, deleteLease                   *sql.Stmt
	insertChange, upsertPool, upsertTomb, pruneRows, pruneTombs           *sql.Stmt
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
		&o.sql.begin:        `BEGIN IMMEDIATE`,
		&o.sql.commit:       `COMMIT`,
		&o.sql.rollback:     `ROLLBACK`,
		&o.sql.insertLease:  insertLease,
		&o.sql.updateLease:  updateLease,
		&o.sql.replaceLease: replaceLease,
		&o.sql.deleteLease:  deleteLease,
		&o.sql.insertChange: insertChange,
		&o.sql.upsertPool:   upsertPool,
		&o.sql.upsertTomb: `INSERT INTO tombstones (uid, attempt, rev, wall, boottime, boot_id) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
			ON CONFLICT (uid) DO UPDATE SET (attempt, rev, wall, boottime, boot_id) = (?2, ?3, ?4, ?5, ?6)`,
		&o.sql.removePool: `DELETE FROM pools WHERE uid = ?1`,
		&o.sql.upsertName: `INSERT INTO pool_names (name, family, generation, configured) VALUES (?1, ?2, ?3, ?4)
			ON CONFLICT (name, family) DO UPDATE SET (generation, configured) = (?3, ?4)`,
		&o.sql.withhold:       insertWithheld,
		&o.sql.unwithhold:     `DELETE FROM withheld WHERE ip = ?1`,
		&o.sql.pruneRows:      `DELETE FROM changes WHERE rev <= ?1`,
		&o.sql.pruneTombs:     `DELETE FROM tombstones WHERE uid = ?1`,
		&o.sql.noteRuntime:    `UPDATE book SET runtime_id = ?1`,
		&o.sql.takeOver:       `UPDATE book SET (epoch, runner_uid, machine_id, boot_id) = (?1, ?2, ?3, ?4)`,
		&o.sql.touch:          `UPDATE book SET boot_id = boot_id || ' '`,
		&o.sql.untouch:        `UPDATE book SET boot_id = rtrim(boot_id)`,
		&o.sql.insertHostName: insertHostName,
		&o.sql.endHostName:    endHostName,
		&o.sql.pruneHostNames: pruneHostNames,
		&o.sql.upsertSleep:    upsertSleep,
		&o.sql.deleteSleep:    deleteSleep,
		&o.sql.upsertSlot:     upsertSlot,
		&o.sql.deleteSlot:     deleteSlot,
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
func (s *store) write(steps []step) error {
	for _, st := range steps {
		if err := s.writeStep(st); err != nil {
			return err
		}
		s.opts.meet("store")
	}
	_, err := s.sql.commit.Exec()
	return s.Classify("commit", err)
}

func (s *store) writeStep(st step) error {
	what := st.change.Addr.String()
	var res sql.Result
	var err error
	switch {
	case st.removed:
		what = "the end of pool " + st.pool.Name
		res, err = s.sql.removePool.Exec(st.pool.UID)
	case st.pool != nil:
		what = "pool " + st.pool.Name
		res, err = s.sql.upsertPool.Exec(st.pool.row()...)
	case st.name != nil:
		what = "the name of pool " + st.name.key.name
		res, err = s.sql.upsertName.Exec(st.name.row()...)
	case st.tomb != "":
		what = "tombstone"
		res, err = s.sql.upsertTomb.Exec(st.tomb, st.stone.attempt,
			st.stone.rev, st.stone.at.Wall.UnixNano(), int64(st.stone.at.Boottime), st.stone.at.BootID)
	case st.holding != nil:
		what = "whose it is"
		res, err = s.sql.takeOver.Exec(st.holding.Epoch, st.holding.RunnerUID, st.holding.MachineID, s.Boot)
	case st.runtime != "":
		what = "runtime " + st.runtime
		res, err = s.sql.noteRuntime.Exec(st.runtime)
	case st.withheld != nil && st.old == nil && st.now == nil:
		res, err = s.sql.withhold.Exec(st.withheld.row()...)
	case st.old == nil:
		res, err = s.sql.insertLease.Exec(st.now.row()...)
	case st.now == nil:
		res, err = s.sql.deleteLease.Exec(st.old.fence()...)
	case st.now.ID == st.old.ID:
		res, err = s.sql.updateLease.Exec(append(st.now.other(), st.old.fence()...)...)
	default:
		res, err = s.sql.replaceLease.Exec(slices.Concat([]any{st.now.ID}, st.now.other(), st.old.fence())...)
	}
	if err != nil {
		return s.Classify("store "+what, err)
	}
	if n, err := res.RowsAffected(); err != nil || n != 1 {
		return fmt.Errorf("store %s: %w: the row is not as it was read", what, ErrStale)
	}
	if st.pool != nil && st.name != nil {
		if _, err := s.sql.upsertName.Exec(st.name.row()...); err != nil {
			return s.Classify("store the name of "+what, err)
		}
	}
	if w := st.withheld; w != nil && (st.old != nil || st.now != nil) {
		if st.now == nil {
			_, err = s.sql.withhold.Exec(w.row()...)
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
	if err := st.sleep.write(s, "sleep", s.sql.upsertSleep, s.sql.deleteSleep, (*Sleep).row); err != nil {
		return err
	}
	if err := st.slot.write(s, "slot", s.sql.upsertSlot, s.sql.deleteSlot, (*Slot).row); err != nil {
		return err
	}
	_, err = s.sql.insertChange.Exec(st.change.row(st.now, s.clock.Uptime())...)
	return s.Classify("record "+what, err)
}

// finish runs fn in the transaction that has begun, and commits.
func (s *store) finish(fn func() error) error {
	err := safely(fn)
	if err == nil {
		_, err = s.sql.commit.Exec()
	}
	if err != nil {
		_, _ = s.sql.rollback.Exec() // SQLite may have taken it back by itself
	}
	return err
}
