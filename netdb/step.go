package netdb

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/netdb/group"
)

// An overlay is the steps that a batch has staged, and the rows as they leave
// them. A nil lease means that the row is gone.
type overlay struct {
	steps   []step
	rev     int64 // of the last step
	runtime string

	leases   map[netip.Addr]*ipam.Lease
	prefixes []*ipam.Lease // rows of delegated prefixes, also as they were in between
	ids      map[string]*ipam.Lease
	owners   map[ipam.Owner]*ipam.Lease
	tombs    map[string]tombstone

	pools      map[string]*ipam.Pool // by uid; nil: removed
	names      map[nameKey]ipam.PoolName
	withheld   map[netip.Addr]*ipam.Withheld // nil: no more
	hostNames  map[string]*ipam.HostName     // nil: it has ended
	hostNameOf map[link]*ipam.HostName
	sleeps     map[string]*ipam.Sleep // by lease; nil: it has ended
	slots      map[string]*ipam.Slot  // likewise
}

// A step is one staged change: the row before and after it, and its record.
type step struct {
	old, now *ipam.Lease
	change   *ipam.Change
	pool     *ipam.Pool // a pool made or changed, or removed
	removed  bool
	name     *ipam.PoolName // what is remembered of a pool's name from now on
	withheld *ipam.Withheld // of a row that goes: from now on; of one that comes: no more
	tomb     string         // a tombstone set for this uid
	stone    tombstone
	runtime  string        // the runtime that was noted
	holding  *ipam.Holding // whose the book is from here on

	named, unnamed *ipam.HostName // given with the change of a lease, and ended by it
	sleep          beside[ipam.Sleep]
	slot           beside[ipam.Slot]
}

func newOverlay() *overlay {
	return &overlay{
		leases: make(map[netip.Addr]*ipam.Lease),
		ids:    make(map[string]*ipam.Lease),
		owners: make(map[ipam.Owner]*ipam.Lease),
		tombs:  make(map[string]tombstone),

		pools:      make(map[string]*ipam.Pool),
		names:      make(map[nameKey]ipam.PoolName),
		withheld:   make(map[netip.Addr]*ipam.Withheld),
		hostNames:  make(map[string]*ipam.HostName),
		hostNameOf: make(map[link]*ipam.HostName),
		sleeps:     make(map[string]*ipam.Sleep),
		slots:      make(map[string]*ipam.Slot),
	}
}

// reset empties the overlay for another batch on top of a revision. Its memory
// stays, unless it was a giant's: maps that were made for every request were a
// third of what a commit allocated.
func (o *overlay) reset(rev int64) {
	if len(o.steps) > 4*group.MaxBatch {
		*o = *newOverlay()
	}
	clear(o.steps)
	o.steps, o.rev, o.runtime = o.steps[:0], rev, ""
	clear(o.leases)
	o.prefixes = o.prefixes[:0]
	clear(o.ids)
	clear(o.owners)
	clear(o.tombs)
	clear(o.pools)
	clear(o.names)
	clear(o.withheld)
	clear(o.hostNames)
	clear(o.hostNameOf)
	clear(o.sleeps)
	clear(o.slots)
}

// rewind drops what a request staged before it failed, and leaves the first n
// steps, which are its neighbours', as they were.
func (o *overlay) rewind(n int, rev int64) {
	if len(o.steps) == n {
		return
	}
	kept := slices.Clone(o.steps[:n])
	o.reset(rev)
	for _, s := range kept {
		o.stage(s)
	}
}

// last is the step that was staged last.
func (o *overlay) last() *step { return &o.steps[len(o.steps)-1] }

func (o *overlay) stage(s step) {
	o.steps = append(o.steps, s)
	if s.change != nil {
		o.rev = s.change.Rev
	}
	if s.tomb != "" {
		o.tombs[s.tomb] = s.stone
	}
	if s.runtime != "" {
		o.runtime = s.runtime
	}
	switch {
	case s.removed:
		o.pools[s.pool.UID] = nil
	case s.pool != nil:
		o.pools[s.pool.UID] = s.pool
	}
	if s.name != nil {
		o.names[nameKeyOf(s.name)] = *s.name
	}
	if w := s.withheld; w != nil {
		if o.withheld[w.Addr] = nil; s.now == nil {
			o.withheld[w.Addr] = w
		}
	}
	if old := s.old; old != nil {
		o.leases[old.Addr] = nil
		o.ids[old.ID] = nil
		if old.State.Open() {
			o.owners[old.Owner()] = nil
		}
	}
	if now := s.now; now != nil {
		o.leases[now.Addr] = now
		if now.PrefixLen != 0 {
			o.prefixes = append(o.prefixes, now)
		}
		o.ids[now.ID] = now
		if now.State.Open() {
			o.owners[now.Owner()] = now
		}
	}
	o.noteNames(s)
	s.sleep.stage(o.sleeps)
	s.slot.stage(o.slots)
}

// look finds what is staged under a key, or else what is committed.
func look[K comparable, V any](k K, staged, committed map[K]V) V {
	if v, ok := staged[k]; ok {
		return v
	}
	return committed[k]
}

// A beside is what a step does to a table whose rows belong to leases, at most one to each,
// by their ids: the sleeps, and the slots. A row is recorded with a change of its lease, and
// ends with one.
type beside[T any] struct {
	ended string // the lease whose row ends first; "": none
	lease string // of row
	row   *T     // recorded; nil: none
}

// stage makes the staged rows agree, of which nil has ended.
func (b beside[T]) stage(staged map[string]*T) {
	if b.ended != "" {
		staged[b.ended] = nil
	}
	if b.row != nil {
		staged[b.lease] = b.row
	}
}

// apply makes the rows in memory agree.
func (b beside[T]) apply(rows map[string]*T) {
	if b.ended != "" {
		delete(rows, b.ended)
	}
	if b.row != nil {
		rows[b.lease] = b.row
	}
}

// write stores it. what names a row.
func (b beside[T]) write(s *store, what string, upsert, end *sql.Stmt, columns func(*T) []any) error {
	if b.ended != "" {
		if _, err := end.Exec(b.ended); err != nil {
			return s.Classify("end the "+what+" of "+b.ended, err)
		}
	}
	if b.row != nil {
		if _, err := upsert.Exec(columns(b.row)...); err != nil {
			return s.Classify("store the "+what+" of "+b.lease, err)
		}
	}
	return nil
}

// byLease returns every row, in the order of the leases' ids: the oldest first.
func byLease[T any](rows map[string]*T) (out []*T) {
	for _, id := range slices.Sorted(maps.Keys(rows)) {
		out = append(out, rows[id])
	}
	return out
}

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
		&o.sql.begin:          `BEGIN IMMEDIATE`,
		&o.sql.commit:         `COMMIT`,
		&o.sql.rollback:       `ROLLBACK`,
		&o.sql.insertLease:    insertLease,
		&o.sql.updateLease:    updateLease,
		&o.sql.replaceLease:   replaceLease,
		&o.sql.deleteLease:    deleteLease,
		&o.sql.insertChange:   insertChange,
		&o.sql.upsertPool:     upsertPool,
		&o.sql.upsertTomb:     upsertTomb,
		&o.sql.removePool:     `DELETE FROM pools WHERE uid = ?1`,
		&o.sql.upsertName:     upsertPoolName,
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
		res, err = s.sql.upsertPool.Exec(poolRow(st.pool)...)
	case st.name != nil:
		what = "the name of pool " + st.name.Name
		res, err = s.sql.upsertName.Exec(poolNameRow(st.name)...)
	case st.tomb != "":
		what = "tombstone"
		res, err = s.sql.upsertTomb.Exec(st.stone.row(st.tomb)...)
	case st.holding != nil:
		what = "whose it is"
		res, err = s.sql.takeOver.Exec(st.holding.Epoch, st.holding.RunnerUID, st.holding.MachineID, s.Boot)
	case st.runtime != "":
		what = "runtime " + st.runtime
		res, err = s.sql.noteRuntime.Exec(st.runtime)
	case st.withheld != nil && st.old == nil && st.now == nil:
		res, err = s.sql.withhold.Exec(withheldRow(st.withheld)...)
	case st.old == nil:
		res, err = s.sql.insertLease.Exec(leaseRow(st.now)...)
	case st.now == nil:
		res, err = s.sql.deleteLease.Exec(fenceOf(st.old)...)
	case st.now.ID == st.old.ID:
		res, err = s.sql.updateLease.Exec(append(otherValues(st.now), fenceOf(st.old)...)...)
	default:
		res, err = s.sql.replaceLease.Exec(slices.Concat([]any{st.now.ID}, otherValues(st.now), fenceOf(st.old))...)
	}
	if err != nil {
		return s.Classify("store "+what, err)
	}
	if n, err := res.RowsAffected(); err != nil || n != 1 {
		return fmt.Errorf("store %s: %w: the row is not as it was read", what, ipam.ErrStale)
	}
	if st.pool != nil && st.name != nil {
		if _, err := s.sql.upsertName.Exec(poolNameRow(st.name)...); err != nil {
			return s.Classify("store the name of "+what, err)
		}
	}
	if w := st.withheld; w != nil && (st.old != nil || st.now != nil) {
		if st.now == nil {
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
	if err := st.sleep.write(s, "sleep", s.sql.upsertSleep, s.sql.deleteSleep, sleepRow); err != nil {
		return err
	}
	if err := st.slot.write(s, "slot", s.sql.upsertSlot, s.sql.deleteSlot, slotRow); err != nil {
		return err
	}
	_, err = s.sql.insertChange.Exec(changeRow(st.change, st.now, s.clock.Uptime())...)
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
