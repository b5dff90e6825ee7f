package bookfile

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
)

// PageSize is that of a book and of its log, in bytes: SQLite's own.
const PageSize = 4096

// SQLite's write-ahead log, section 4 of its file format: a header, and a frame
// for each page that was written. A frame carries the salts of the header, which
// change when the log begins anew, and the sum of all before it.
const (
	walHeader     = 32
	walFrame      = 24 // of a frame's own header; its page follows
	walMagic      = 0x377f0682
	walBigEndian  = 1 // of the magic: how the sums read words
	walVersion    = 3007000
	walSmallPage  = 512
	walLargePage  = 65536
	walReadBuffer = 1 << 18
)

// A Log is where SQLite stops reading a log, and what lies behind.
type Log struct {
	frames int // that are whole, each with the sum of all before; SQLite reads up to the last commit of them
	Bad    int // the number of the frame that is not, from 1; 0 when the log just ends
	// Tail reports frames of this log behind its end, which stay there when SQLite
	// goes on in front of them. Those of an older log have other salts.
	Tail bool
	// Broken is why the log is damaged, "" when what is behind the end may be
	// there. A frame that continues a commit is written after that commit succeeded,
	// and with synchronous = "full" it was on the disk by then. So no power loss,
	// no kill and no refused commit leaves a commit and its successor behind a frame
	// that is not whole: of one commit that was not acknowledged, and of refused ones
	// before it that were longer, there are only frames up to a commit.
	Broken string
}

// Empty reports that SQLite reads nothing.
func (e Log) Empty() bool { return e.frames == 0 && e.Bad == 0 && e.Broken == "" }

// ReadLog walks the log of the book at a path. One that is not there is empty.
func ReadLog(book string) (Log, error) {
	f, err := OpenRegular(book+LogEnd, os.O_RDONLY)
	if errors.Is(err, os.ErrNotExist) {
		return Log{}, nil
	}
	if err != nil {
		return Log{}, err
	}
	defer f.Close()
	return walkLog(bufio.NewReaderSize(f, walReadBuffer))
}

// walkLog reads a log to its end. An error is the reader's.
func walkLog(r io.Reader) (end Log, err error) {
	var h [walHeader]byte
	if _, err := io.ReadFull(r, h[:]); err != nil {
		return Log{}, unlessShort(err)
	}
	l, ok := parseWAL(h[:])
	if !ok {
		// The header is synced before the first frame is written.
		any, err := anything(r)
		if any {
			end.Broken = "its header is not whole, and there is something behind it"
		}
		return end, err
	}
	frame := make([]byte, walFrame+l.pageSize)
	var last frameHead // as it is stored, whole or not
	last.sum = l.sum
	for n := 1; ; n++ {
		if got, err := io.ReadFull(r, frame); err != nil {
			if got > 0 && end.Bad == 0 {
				end.Bad = n
			}
			return end, unlessShort(err)
		}
		now := l.head(frame)
		linked := now.salt == l.salt && now.page != 0 && now.sum == l.sumOf(last.sum, frame)
		switch {
		case linked && end.Bad == 0:
			end.frames = n
		case end.Bad == 0:
			end.Bad = n
		case linked && last.commits != 0 && end.Broken == "":
			end.Broken = fmt.Sprintf("frame %d of it, at byte %d, is not whole, and commits that were acknowledged lie behind it (frame %d)",
				end.Bad, walHeader+(end.Bad-1)*len(frame), n-1)
		}
		end.Tail = end.Tail || end.Bad != 0 && now.salt == l.salt
		last = now
	}
}

// unlessShort is nil at the end of a file, wherever in a frame that is.
func unlessShort(err error) error {
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		return nil
	}
	return err
}

// anything reports whether there is a byte other than zero.
func anything(r io.Reader) (bool, error) {
	buf := make([]byte, walReadBuffer)
	for {
		n, err := r.Read(buf)
		for _, b := range buf[:n] {
			if b != 0 {
				return true, nil
			}
		}
		if err != nil {
			return false, unlessShort(err)
		}
	}
}

// A walSum is the running sum of a log.
type walSum [2]uint32

// A walShape is what the header of a log says.
type walShape struct {
	order    binary.ByteOrder
	pageSize int
	salt     [8]byte
	sum      walSum
}

func parseWAL(h []byte) (walShape, bool) {
	magic, size := binary.BigEndian.Uint32(h), binary.BigEndian.Uint32(h[8:])
	l := walShape{order: binary.LittleEndian, pageSize: int(size), salt: [8]byte(h[16:24])}
	if magic&walBigEndian != 0 {
		l.order = binary.BigEndian
	}
	if magic&^walBigEndian != walMagic || binary.BigEndian.Uint32(h[4:]) != walVersion ||
		size < walSmallPage || size > walLargePage || size&(size-1) != 0 {
		return l, false
	}
	l.sum = l.add(walSum{}, h[:24])
	return l, l.sum == storedSum(h[24:])
}

// A frameHead is the header of a frame.
type frameHead struct {
	page, commits uint32 // the second is not 0 in the last frame of a commit
	salt          [8]byte
	sum           walSum
}

func (l walShape) head(f []byte) frameHead {
	return frameHead{binary.BigEndian.Uint32(f), binary.BigEndian.Uint32(f[4:]), [8]byte(f[8:16]), storedSum(f[16:])}
}

// sumOf is what a frame has to have as its sum behind one that has before.
func (l walShape) sumOf(before walSum, frame []byte) walSum {
	return l.add(l.add(before, frame[:8]), frame[walFrame:])
}

func (l walShape) add(s walSum, b []byte) walSum {
	for ; len(b) >= 8; b = b[8:] {
		s[0] += l.order.Uint32(b) + s[1]
		s[1] += l.order.Uint32(b[4:]) + s[0]
	}
	return s
}

func (s walSum) append(b []byte) []byte {
	return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(b, s[0]), s[1])
}

func storedSum(b []byte) walSum {
	return walSum{binary.BigEndian.Uint32(b), binary.BigEndian.Uint32(b[4:])}
}

// JoinLog makes the frames of a copied book's log follow each other again, with new sums,
// so that SQLite reads all of them: one that is broken is a broken page at most, and
// one whose header is lost is left out.
func JoinLog(book string) error {
	path := book + LogEnd
	data, err := os.ReadFile(path)
	if err != nil || len(data) < walHeader+walFrame {
		return err
	}
	l, ok := parseWAL(data)
	if !ok { // a log of ours, with the salts of its first frame
		l = walShape{order: binary.LittleEndian, pageSize: PageSize, salt: [8]byte(data[walHeader+8:])}
		var h []byte
		for _, v := range [...]uint32{walMagic, walVersion, PageSize, 0} {
			h = binary.BigEndian.AppendUint32(h, v)
		}
		h = append(h, l.salt[:]...)
		l.sum = l.add(walSum{}, h)
		copy(data, l.sum.append(h))
	}
	out, sum := bytes.Clone(data[:walHeader]), l.sum
	for frame := range slices.Chunk(data[walHeader:], walFrame+l.pageSize) {
		if len(frame) < walFrame+l.pageSize {
			break
		}
		if h := l.head(frame); h.salt != l.salt || h.page == 0 {
			continue
		}
		sum = l.sumOf(sum, frame)
		out = sum.append(append(out, frame[:16]...))
		out = append(out, frame[walFrame:]...)
	}
	return os.WriteFile(path, out, 0o600)
}
