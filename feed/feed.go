package feed

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ipamd/ipamd/internal/broadcast"
	"github.com/ipamd/ipamd/ipam"
)

const (
	// keepLines and keepBytes bound the changes that are in memory.
	keepLines = 8192
	keepBytes = 8 << 20
	// batchLines and batchBytes bound what one reader is given at once, and so what a
	// thousand that are stuck keep in memory.
	batchLines = 128
	batchBytes = 32 << 10
	// fillLines is how many changes are read at once to be shared, and how many a reader of
	// older ones takes ahead while all of them have no more than mostAhead bytes so.
	fillLines = 1000
	mostAhead = 8 << 20
	usualLine = 448 // bytes, and some
	// gather is how long changes gather before a reader is given them, for each reader
	// there is: waking one takes some 10 µs, so all of them take a tenth of a core at
	// most, however often there is a commit.
	gather     = 100 * time.Microsecond
	mostGather = 500 * time.Millisecond
)

// ErrCompacted means that changes behind the position are not kept any more, or that
// the book never had the position: list again.
var ErrCompacted = errors.New("the changes behind this position are not kept")

// A Book is what the stream is read from.
type Book interface {
	Rev() int64
	Epoch() string
	Changed() <-chan struct{}
	Changes(ctx context.Context, since int64, limit int) ([]ipam.Change, error)
}

// A Feed is the stream of one book. All methods are safe for concurrent use.
type Feed struct {
	book    Book
	encode  Encode
	keep    int // lines in memory at the most
	readers atomic.Int64
	ahead   atomic.Int64 // bytes that readers have taken ahead

	filling sync.Mutex // of the one that reads for all

	mu    sync.Mutex
	epoch string // that the lines are of
	first int64  // revision of lines[0]
	lines []Line // revisions without a gap
	bytes int
}

// A Line is one change.
type Line struct {
	Revision int64
	Subject  ipam.Subject
	JSON     []byte // shared: not to be changed
	follows  bool   // in memory, too, the line of the revision before
}

// Join returns the lines that are wanted, those that lie behind one another as one: what was
// encoded once is written by all readers from where it is.
func Join(lines []Line, wanted func(ipam.Subject) bool) (parts [][]byte) {
	open := false // the line before is the end of the last part
	for _, l := range lines {
		if !wanted(l.Subject) {
			open = false
			continue
		}
		if last := len(parts) - 1; open && l.follows {
			parts[last] = parts[last][:len(parts[last])+len(l.JSON)]
		} else {
			parts = append(parts, l.JSON)
		}
		open = true
	}
	return parts
}

// Encode appends the line of a change, for those who read in an epoch.
type Encode func(line []byte, c *ipam.Change, epoch string) ([]byte, error)

// New returns the feed of a book.
func New(book Book, encode Encode) *Feed {
	return &Feed{book: book, encode: encode, keep: keepLines, first: 1}
}

// A Gate waits until a reader may read the book itself; end says that it has.
type Gate func(ctx context.Context) (end func(), err error)

// A Reader is one subscriber's position in the stream. It is for one goroutine.
type Reader struct {
	feed *Feed
	gate Gate
	at   int64
	last time.Time // when it was given the newest change
	rest []Line    // what it has taken ahead
	held int64     // bytes of that, of all that its feed has
}

// Read begins behind a revision of the book; close it when it is not read any more.
// [ErrCompacted] means that the book has not kept what follows, or never was there. What
// is not in memory any more is read through the gate, nil is none: many that replay the
// history take no more of the machine than the gate leaves them.
func (f *Feed) Read(ctx context.Context, since int64, gate Gate) (*Reader, error) {
	if now := f.book.Rev(); since < 0 || since > now {
		return nil, fmt.Errorf("revision %d of a book that is at %d: %w", since, now, ErrCompacted)
	}
	f.readers.Add(1)
	r := &Reader{feed: f, gate: gate, at: since}
	if _, err := r.next(ctx, 1); err != nil {
		r.Close()
		return nil, err
	}
	return r, nil
}

// Close ends the subscription.
func (r *Reader) Close() {
	r.take(nil)
	r.feed.readers.Add(-1)
}

// take makes lines what the reader has taken ahead.
func (r *Reader) take(lines []Line) {
	held := int64(0)
	for _, l := range lines {
		held += int64(len(l.JSON))
	}
	r.feed.ahead.Add(held - r.held)
	r.rest, r.held = lines, held
}

// At is the revision up to which all was given.
func (r *Reader) At() int64 { return r.at }

// Readers is how many subscriptions there are.
func (f *Feed) Readers() int { return int(f.readers.Load()) }

// Next returns what follows, one change at the least and in their order. It waits until
// there is one, or until ctx ends, which is its error then.
func (r *Reader) Next(ctx context.Context) ([]Line, error) {
	pause := min(mostGather, time.Duration(r.feed.readers.Load()-1)*gather) - time.Since(r.last)
	if pause > 0 && !broadcast.Pause(ctx, pause) {
		return nil, ctx.Err()
	}
	for {
		changed := r.feed.book.Changed()
		lines, err := r.next(ctx, batchLines)
		if err != nil {
			return nil, err
		}
		if len(lines) > 0 {
			if r.at = lines[len(lines)-1].Revision; r.at >= r.feed.book.Rev() {
				r.last = time.Now()
			}
			return lines, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// next returns what follows; nothing when there is nothing yet.
func (r *Reader) next(ctx context.Context, most int) ([]Line, error) {
	f := r.feed
	if len(r.rest) > 0 {
		return r.pass(most), nil
	}
	r.take(nil)
	if f.book.Rev() <= r.at {
		return nil, nil
	}
	if lines, ok := f.recent(r.at, most); ok {
		return lines, nil
	}
	if err := f.fill(ctx, r.at); err != nil {
		return nil, err
	}
	if lines, ok := f.recent(r.at, most); ok {
		return lines, nil
	}
	if r.gate != nil {
		end, err := r.gate(ctx)
		if err != nil {
			return nil, err
		}
		defer end()
	}
	ahead := most
	if most > 1 && f.ahead.Load() < mostAhead {
		ahead = fillLines
	}
	lines, err := f.older(ctx, r.at, ahead)
	if ahead == most || err != nil {
		return lines, err
	}
	r.take(lines)
	return r.pass(most), nil
}

// pass gives what was taken ahead, and holds it until all was given.
func (r *Reader) pass(most int) []Line {
	n := fit(r.rest, most)
	lines := r.rest[:n:n]
	r.rest = r.rest[n:]
	return lines
}

// recent returns what follows from memory, if it is there. Lines of another epoch than the book's
// are for no reader any more.
func (f *Feed) recent(since int64, most int) ([]Line, bool) {
	epoch := f.book.Epoch()
	f.mu.Lock()
	defer f.mu.Unlock()
	from := since + 1 - f.first
	if epoch != f.epoch || from < 0 || from >= int64(len(f.lines)) {
		return nil, false
	}
	lines := f.lines[from:]
	n := fit(lines, most)
	return lines[:n:n], true
}

// fit is how many lines fit into a batch: one in any case.
func fit(lines []Line, most int) int {
	bytes := 0
	for i, l := range lines[:min(most, len(lines))] {
		if bytes += len(l.JSON); bytes > batchBytes && i > 0 {
			return i
		}
	}
	return min(most, len(lines))
}

// fill takes what the book has beyond memory into it, unless there is something behind
// since, or since is before all that is in memory. One reading has all that the book had
// when it began: a book that changes on and on keeps no reader here.
func (f *Feed) fill(ctx context.Context, since int64) error {
	f.filling.Lock()
	defer f.filling.Unlock()
	for {
		epoch := f.book.Epoch()
		end := f.end(epoch, f.book.Rev()-fillLines)
		if since < end {
			return nil
		}
		changes, err := f.book.Changes(ctx, end, fillLines)
		if gap := new(ipam.PrunedError); errors.As(err, &gap) {
			f.end(epoch, gap.Upto)
			continue
		}
		if err != nil || len(changes) == 0 {
			return err
		}
		lines, err := f.encodeAll(changes, epoch)
		f.add(lines)
		return err
	}
}

// end is the last revision in memory. It is least at the least: where memory ends before
// that, as there was no reader for a while, or is of another epoch, it begins anew behind it.
func (f *Feed) end(epoch string, least int64) int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	end := f.first + int64(len(f.lines)) - 1
	if end < least || epoch != f.epoch {
		f.epoch, f.first, f.lines, f.bytes = epoch, max(least, 0)+1, nil, 0
		end = max(least, 0)
	}
	return end
}

// add appends lines, and drops the oldest beyond what may be in memory: a quarter at
// once, for the rest is copied. Readers have parts of the old array.
func (f *Feed) add(lines []Line) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, l := range lines {
		f.bytes += len(l.JSON)
	}
	f.lines = append(f.lines, lines...)
	if len(f.lines) <= f.keep && f.bytes <= keepBytes {
		return
	}
	drop := 0
	for len(f.lines)-drop > f.keep*3/4 || f.bytes > keepBytes*3/4 && len(f.lines)-drop > 1 {
		f.bytes -= len(f.lines[drop].JSON)
		drop++
	}
	f.lines = append(make([]Line, 0, len(f.lines)), f.lines[drop:]...)
	f.first += int64(drop)
}

// older reads what follows from the book, for one reader.
func (f *Feed) older(ctx context.Context, since int64, most int) ([]Line, error) {
	epoch := f.book.Epoch()
	changes, err := f.book.Changes(ctx, since, most)
	if errors.Is(err, ipam.ErrPruned) {
		return nil, fmt.Errorf("%w: %w", ErrCompacted, err)
	}
	if err != nil || len(changes) == 0 {
		return nil, err
	}
	lines, err := f.encodeAll(changes, epoch)
	if err != nil || most > batchLines {
		return lines, err
	}
	return lines[:fit(lines, most)], nil
}

// encodeAll makes lines, up to the first gap: a reader that goes on from there is refused.
func (f *Feed) encodeAll(changes []ipam.Change, epoch string) ([]Line, error) {
	lines, ends := make([]Line, 0, len(changes)), make([]int, 0, len(changes))
	all := make([]byte, 0, len(changes)*usualLine)
	for i := range changes {
		c := &changes[i]
		if c.Rev != changes[0].Rev+int64(i) {
			break
		}
		var err error
		if all, err = f.encode(all, c, epoch); err != nil {
			return nil, fmt.Errorf("encode revision %d: %w", c.Rev, err)
		}
		lines, ends = append(lines, Line{Revision: c.Rev, Subject: c.Subject, follows: i > 0}), append(ends, len(all))
	}
	begin := 0
	for i, end := range ends {
		lines[i].JSON = all[begin:end]
		begin = end
	}
	return lines, nil
}
