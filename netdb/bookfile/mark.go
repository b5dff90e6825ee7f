package bookfile

import (
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

// A Mark is the last revision that was acknowledged, noted in a file beside the
// book behind each commit, without a sync: a write of 512 bytes into the page
// cache. So it is never ahead of what was acknowledged. It may be behind, after a
// power loss; after anything else it is exact.
//
// A book that ends before its mark has lost what was acknowledged: it is an older
// copy, or its log is damaged at a place that does not show. A book without its
// mark, or with a mark that was written into another file, is a copy that was put
// there. None may go on in its epoch, in which revisions would be used twice.
type Mark struct {
	Epoch       string
	Rev         int64
	Boot        string // in which it was written
	Synchronous string // as it was then
	Copied      bool   // it was read from another file than it was written into

	file born // that it was written into
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

// encode fills a sector with a line that a person can read.
func (m Mark) encode(sector *[markSize]byte) {
	line := append(sector[:0], "ipamd-mark 1 "...)
	line = append(strconv.AppendQuote(line, m.Epoch), ' ')
	line = append(strconv.AppendInt(line, m.Rev, 10), ' ')
	line = append(strconv.AppendQuote(line, m.Boot), ' ')
	line = append(strconv.AppendQuote(line, m.Synchronous), ' ')
	line = append(strconv.AppendInt(line, m.file.at, 10), ' ')
	line = strconv.AppendUint(line, m.file.inode, 10)
	line = strconv.AppendUint(append(line, ' '), uint64(crc32.ChecksumIEEE(line)), 16)
	for i := len(line); i < markSize; i++ {
		sector[i] = ' '
	}
	sector[markSize-1] = '\n'
}

// ReadMark reads the mark of a book. One that is not there, or not whole, is none.
func ReadMark(book string) (*Mark, error) {
	f, err := OpenRegular(book+MarkEnd, os.O_RDONLY)
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
	var m Mark
	if _, err := fmt.Sscanf(text[:cut], "ipamd-mark 1 %q %d %q %q %d %d",
		&m.Epoch, &m.Rev, &m.Boot, &m.Synchronous, &m.file.at, &m.file.inode); err != nil {
		return nil, nil
	}
	is, err := bornOf(f)
	if err != nil {
		return nil, err
	}
	m.Copied = !is.same(m.file)
	return &m, nil
}

// A Marker writes the mark of an open book. It is for one goroutine at a time.
type Marker struct {
	path   string
	stored Mark // as it is in the file
	file   *os.File
	sector [markSize]byte
}

// MarkerOf returns a marker that has not looked yet.
func MarkerOf(book string) *Marker { return &Marker{path: book + MarkEnd} }

// Found has the marker know which mark there was, as [ReadMark] has it.
func (m *Marker) Found(was *Mark) {
	if was != nil {
		m.stored = *was
	}
}

// Stored is the mark as it is in the file; its Epoch is "" when none was found.
func (m *Marker) Stored() Mark { return m.stored }

// Open makes a mark durable, so that the next opening finds one however this one
// ends. A mark of this epoch that stays older takes nothing for lost, or for a copy.
func (m *Marker) Open(now Mark) error {
	f, err := OpenRegular(m.path, os.O_RDWR|os.O_CREATE)
	if err == nil {
		m.file = f
		now.file, err = bornOf(f)
	}
	if was := m.stored; err == nil && was != now {
		err = errors.Join(m.write(now), f.Sync(), SyncDir(filepath.Dir(m.path)))
		if was.Epoch == now.Epoch {
			return nil
		}
	}
	if err != nil {
		return fmt.Errorf("note the last revision: %w", err)
	}
	return nil
}

func (m *Marker) write(now Mark) error {
	m.stored = now
	now.encode(&m.sector)
	_, err := m.file.WriteAt(m.sector[:], 0)
	return err
}

// Note writes the last revision that is acknowledged. Without it a later loss shows less.
// Another epoch is synced: a mark of the one before begins a third at the next start.
func (m *Marker) Note(epoch string, rev int64) {
	now, began := m.stored, m.stored.Epoch != epoch
	now.Epoch, now.Rev = epoch, rev
	if err := m.write(now); err == nil && began {
		_ = m.file.Sync()
	}
}

// Keep makes the mark again when it was taken away under an open book: the next start
// would take the book for a copy.
func (m *Marker) Keep(rev int64) {
	st, err := statOf(m.file)
	if err != nil {
		return
	}
	if id, err := identOf(m.path); err == nil && id == (ident{uint64(st.Dev), st.Ino}) || err != nil && !errors.Is(err, os.ErrNotExist) {
		return
	}
	was, now := m.file, m.stored
	m.stored, now.Rev = Mark{}, rev
	if _ = m.Open(now); m.file != was {
		was.Close()
	}
}

// Close is for a marker that was opened or not.
func (m *Marker) Close() error {
	if m.file == nil {
		return nil
	}
	return m.file.Close()
}
