package netdb

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/ipamd/ipamd/internal/elapsed"
	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/netdb/bookfile"
	"github.com/ipamd/ipamd/netdb/group"
	"github.com/ipamd/ipamd/netdb/index"
	"github.com/ipamd/ipamd/netdb/sqlite"
)

// Open opens the book at path, or makes a new one. It locks it against a
// second daemon, checks that it is a lease book, that it is whole and not
// newer than this build, migrates it, and reads it into memory.
//
// A refusal leaves the file as it was: it is never deleted or replaced here.
//
// A book that another process keeps locked is refused at once. A disk that takes
// its time is waited for, however long: with a deadline a large book on a slow disk is
// refused at each start, and a long migration never ends.
func Open(path string, opts Options) (*Book, error) {
	err := opts.check()
	if err == nil && !opts.ReadOnly {
		err = os.MkdirAll(filepath.Dir(path), 0o700)
	}
	real := path
	if err == nil {
		real, err = bookfile.RealPath(path)
	}
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	path = real
	b, err := open(path, opts)
	damaged := errors.Is(err, ErrDamaged)
	if damaged || errors.Is(err, ErrReadOnly) {
		// SQLite calls damaged, too, what the disk could not read, and a book
		// must not be rebuilt for that.
		if unread := bookfile.ReadThrough(path); unread != nil {
			return nil, fmt.Errorf("open %s: %w; look after the disk, the book itself may be whole", path, unread)
		}
	}
	if damaged {
		return open(path, opts)
	}
	return b, err
}

// An opening is a store on its way: what a start alone does, and what it alone knows.
type opening struct {
	*store
	file *sqlite.Opening
	idx  *index.Index // once it is read
}

func open(path string, opts Options) (*Book, error) {
	clock := elapsed.NewClock(opts.Now)
	file := sqlite.New(sqlite.Options{Path: path, ReadOnly: opts.ReadOnly, Synchronous: opts.Synchronous,
		Schema: opts.schema, Boot: clock.Boot(), Now: func() time.Time { return clock.Now().Wall }})
	s := &store{File: file.File, opts: &opts, clock: clock}
	o := &opening{store: s, file: file}
	if err := o.open(); err != nil {
		return nil, errors.Join(file.Refuse(err), s.sql.close(), s.Close())
	}
	h := &history{store: s, index: o.idx}
	w := &writer{store: s, index: o.idx, history: h, opts: s.opts, clock: clock, staged: o.idx.Batch()}
	w.group = group.New(w, ipam.ErrClosed)
	u := &upkeep{store: s, index: o.idx, writer: w, history: h, opts: s.opts, clock: clock, pages: foldAt, pruneAt: o.idx.Rev() + pruneEvery}
	w.upkeep = u
	offers := o.idx.Offers(clock.Now)
	return &Book{Reader: &o.idx.Reader, Offers: offers, signal: &w.signal, history: h, upkeep: u,
		leases: leases{w}, releases: releases{w, offers}, quarantines: quarantines{w}, pools: pools{w},
		sleeps: sleeps{w}, slots: slots{w}, formers: formers{w}, store: s, writer: w, close: sync.OnceValue(func() error {
			w.group.Close()
			return s.shut()
		})}, nil
}

// lookWithin bounds a look at a book that is only read: it may be any user's. A daemon
// waits for its own, however slow the disk is.
const lookWithin = 10 * time.Minute

func (o *opening) open() error {
	ctx, cancel := context.Background(), context.CancelFunc(func() {})
	if o.opts.ReadOnly {
		ctx, cancel = context.WithTimeout(ctx, lookWithin)
	}
	defer cancel()
	unborn, err := o.file.Find()
	if err == nil && !unborn {
		unborn, err = o.accept(ctx)
	}
	if err != nil || o.opts.ReadOnly {
		return err
	}
	if err := o.file.Open(ctx, unborn); err != nil {
		return err
	}
	for _, step := range []func(context.Context) error{o.resumeClock, o.file.CheckWritable, o.identify, o.prepare, o.load} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	if err := o.file.RenewLog(); err != nil {
		return err
	}
	return o.file.OpenMark(o.whose().Epoch, o.idx.Rev())
}

// accept looks at the book without writing a byte, reads it into memory,
// and refuses what is not to be opened. unborn means that there is nothing in it
// yet: a first start ended early.
func (o *opening) accept(ctx context.Context) (unborn bool, err error) {
	if unborn, err = o.file.View(ctx); err == nil && !unborn {
		err = o.readView(ctx)
	}
	return unborn, o.file.JudgeLog(err)
}

func (o *opening) readView(ctx context.Context) (err error) {
	var rev int64
	if rev, err = o.readIdentity(ctx); errors.Is(err, sql.ErrNoRows) && !o.opts.ReadOnly {
		return nil // a first start that ended before it had one, and acknowledged nothing
	} else if err != nil {
		return o.Classify("read the identity", err)
	}
	if o.restored, o.lost, err = o.file.Judge(o.whose().Epoch, rev); err != nil {
		return err
	}
	if o.Version < len(o.opts.schema) {
		return nil // it is read behind its migration
	}
	if o.opts.ReadOnly {
		if err := o.WantPragmas(ctx); err != nil {
			return err
		}
	}
	if err := o.resumeClock(ctx); err != nil {
		return err
	}
	return o.load(ctx)
}

// load reads the book into memory, unless that was done when it was accepted.
func (o *opening) load(ctx context.Context) (err error) {
	if o.idx == nil {
		o.idx, err = o.readIndex(ctx, o.Conn)
	}
	return o.Classify("read", err)
}

// resumeClock reads when the book last recorded something. A book that has
// nothing yet begins with the boot.
func (o *opening) resumeClock(ctx context.Context) error {
	var l elapsed.Last
	var wall, uptime, seen int64
	err := o.Conn.QueryRowContext(ctx, `SELECT wall, uptime, boottime, boot_id FROM changes ORDER BY rev DESC LIMIT 1`).
		Scan(&wall, &uptime, &seen, &l.At.BootID)
	if errors.Is(err, sql.ErrNoRows) {
		return nil
	}
	if err != nil {
		return o.Classify("read when the book was last changed", err)
	}
	l.At.Wall, l.At.Boottime, l.Uptime = time.Unix(0, wall), time.Duration(seen), time.Duration(uptime)
	o.clock.Resume(l)
	return nil
}
