package netdb

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// markSize is that of the mark in bytes: one sector, which a disk writes whole or
// not at all.
const markSize = 512

// A mark is the last revision that was acknowledged, noted in a file beside the
// book behind each commit, without a sync: a write of 512 bytes into the page
// cache. So it is never ahead of what was acknowledged. It may be behind, after a
// power loss; after anything else it is exact.
//
// A book that ends before its mark has lost what was acknowledged: it is an older
// copy, or its log is damaged at a place that does not show. A book without its
// mark, or with a mark that was written into another file, is a copy that was put
// there. None may go on in its epoch, in which revisions would be used twice.
type mark struct {
	epoch       string
	rev         int64
	boot        string // in which it was written
	synchronous string // as it was then
	file        born   // that it was written into
	copied      bool   // and was read from another
}

// A born says which file of a file system one is, whatever becomes of its name, its
// owner and its mode, over reboots and mounts: a copy is born later, and no copying
// sets the moment. Where the file system does not know it, the inode has to do, which
// a copy may have by chance. The device says nothing: its number is another after a
// reboot.
type born struct {
	at    int64 // in Unix nanoseconds, 0 when it is not known
	inode uint64
}

func bornOf(f *os.File) (b born, err error) {
	plain, err := statOf(f)
	if err != nil {
		return b, err
	}
	b.inode = plain.Ino
	conn, err := f.SyscallConn()
	if err != nil {
		return b, err
	}
	var st unix.Statx_t
	var known error
	if err := conn.Control(func(fd uintptr) { known = unix.Statx(int(fd), "", unix.AT_EMPTY_PATH, unix.STATX_BTIME, &st) }); err != nil {
		return b, err
	}
	if known == nil && st.Mask&unix.STATX_BTIME != 0 {
		b.at = st.Btime.Sec*1e9 + int64(st.Btime.Nsec)
	}
	return b, nil
}

func (b born) same(other born) bool {
	if b.at != 0 && other.at != 0 {
		return b.at == other.at
	}
	return b.inode == other.inode
}

// markPath is where the mark of a book lies.
func markPath(book string) string { return book + "-mark" }

// encode fills a sector with a line that a person can read.
func (m mark) encode(sector *[markSize]byte) {
	line := append(sector[:0], "ipamd-mark 1 "...)
	line = append(strconv.AppendQuote(line, m.epoch), ' ')
	line = append(strconv.AppendInt(line, m.rev, 10), ' ')
	line = append(strconv.AppendQuote(line, m.boot), ' ')
	line = append(strconv.AppendQuote(line, m.synchronous), ' ')
	line = append(strconv.AppendInt(line, m.file.at, 10), ' ')
	line = strconv.AppendUint(line, m.file.inode, 10)
	line = strconv.AppendUint(append(line, ' '), uint64(crc32.ChecksumIEEE(line)), 16)
	for i := len(line); i < markSize; i++ {
		sector[i] = ' '
	}
	sector[markSize-1] = '\n'
}

// readMark reads the mark of a book. One that is not there, or not whole, is none.
func readMark(book string) (*mark, error) {
	f, err := openRegular(markPath(book), os.O_RDONLY)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	sector := make([]byte, markSize)
	if _, err := io.ReadFull(f, sector); errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	text := strings.TrimSpace(string(sector))
	cut := strings.LastIndexByte(text, ' ')
	if cut < 0 {
		return nil, nil
	}
	sum, err := strconv.ParseUint(text[cut+1:], 16, 32)
	if err != nil || uint32(sum) != crc32.ChecksumIEEE([]byte(text[:cut])) {
		return nil, nil
	}
	var m mark
	if _, err := fmt.Sscanf(text[:cut], "ipamd-mark 1 %q %d %q %q %d %d",
		&m.epoch, &m.rev, &m.boot, &m.synchronous, &m.file.at, &m.file.inode); err != nil {
		return nil, nil
	}
	is, err := bornOf(f)
	if err != nil {
		return nil, err
	}
	m.copied = !is.same(m.file)
	return &m, nil
}

// renewLog folds the log into the book and empties it where the mark is about to say
// more than the log can show. SQLite goes on behind the last whole commit, under the
// same salts: commits that a power loss left behind a torn frame would pass for
// acknowledged ones that are damaged now, and so would what synchronous = "normal"
// has not synced, once the mark says "full". Before it the mark says what was, and
// a power loss or a kill in between is judged by that.
func (o *opening) renewLog(ctx context.Context) error {
	switched := o.mark.stored.epoch != "" && o.mark.stored.synchronous != o.opts.Synchronous
	if !o.foundLog.tail && !switched {
		return nil
	}
	var held bool
	var length, folded int
	if err := o.conn.QueryRowContext(ctx, `PRAGMA wal_checkpoint(TRUNCATE)`).Scan(&held, &length, &folded); err != nil {
		return o.classify("empty the log", err)
	}
	if held {
		return fmt.Errorf("empty the log: %w: another process reads %s", ErrBusy, o.path)
	}
	return nil
}

// A marker writes the mark of an open book. It is the lock holder's.
type marker struct {
	path   string
	stored mark // as it is in the file
	file   *os.File
	sector [markSize]byte
}

// open makes a mark durable, so that the next opening finds one however this one
// ends. A mark of this epoch that stays older takes nothing for lost, or for a copy.
func (m *marker) open(now mark) error {
	f, err := openRegular(m.path, os.O_RDWR|os.O_CREATE)
	if err == nil {
		m.file = f
		now.file, err = bornOf(f)
	}
	if was := m.stored; err == nil && was != now {
		err = errors.Join(m.write(now), f.Sync(), syncDir(filepath.Dir(m.path)))
		if was.epoch == now.epoch {
			return nil
		}
	}
	if err != nil {
		return fmt.Errorf("note the last revision: %w", err)
	}
	return nil
}

func (m *marker) write(now mark) error {
	m.stored = now
	now.encode(&m.sector)
	_, err := m.file.WriteAt(m.sector[:], 0)
	return err
}

// note writes the last revision that is acknowledged. Without it a later loss shows less.
// Another epoch is synced: a mark of the one before begins a third at the next start.
func (m *marker) note(epoch string, rev int64) {
	now, began := m.stored, m.stored.epoch != epoch
	now.epoch, now.rev = epoch, rev
	if err := m.write(now); err == nil && began {
		_ = m.file.Sync()
	}
}

// keep makes the mark again when it was taken away under an open book: the next start
// would take the book for a copy.
func (m *marker) keep(rev int64) {
	st, err := statOf(m.file)
	if err != nil {
		return
	}
	if id, err := identOf(m.path); err == nil && id == (ident{uint64(st.Dev), st.Ino}) || err != nil && !errors.Is(err, os.ErrNotExist) {
		return
	}
	was, now := m.file, m.stored
	m.stored, now.rev = mark{}, rev
	if _ = m.open(now); m.file != was {
		was.Close()
	}
}

// openMark is the last step of an opening.
func (o *opening) openMark(context.Context) error {
	return o.mark.open(mark{epoch: o.whose().Epoch, rev: o.idx.rev, boot: o.bootID, synchronous: o.opts.Synchronous})
}

// judge compares a book that ends at a revision with its mark and its log. The error is
// [ErrDamaged]; a book that may only not go on in its epoch is noted as restored.
func (o *opening) judge(rev int64) error {
	m := o.mark.stored
	switch {
	case rev == 0 && (m.rev == 0 || m.epoch != o.whose().Epoch):
	case m.epoch == "":
		o.restored = "no note of its last revision lies beside it, so it is a copy that was put here"
	case m.epoch != o.whose().Epoch:
		o.restored = fmt.Sprintf("what lay here before was epoch %s, up to revision %d", m.epoch, m.rev)
	case m.rev <= rev && m.copied:
		o.restored = "the note of its last revision beside it was written into another file, so its folder is a copy"
	case m.rev <= rev:
	case !o.foundLog.empty() && o.kept():
		return fmt.Errorf("%w: revision %d was acknowledged, and with its log it ends at %d; if an older copy was put in its place, its log has to go: %s",
			ErrDamaged, m.rev, rev, o.path+"-wal")
	default:
		o.restored = fmt.Sprintf("revision %d was acknowledged, and it ends at %d: it is an older copy, or its log was lost", m.rev, rev)
		o.lost = m.rev - rev
	}
	return nil
}

// kept reports that all that was acknowledged before this start has to be on the
// disk: with synchronous = "normal" that is so within a boot.
func (o *opening) kept() bool {
	if o.mark.stored.epoch == "" {
		return o.opts.Synchronous == "full"
	}
	return o.mark.stored.synchronous == "full" || o.mark.stored.boot == o.bootID
}
