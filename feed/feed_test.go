package feed

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/netdb"
	"github.com/ipamd/ipamd/netdb/netdbtest"
)

func encode(line []byte, c *ipam.Change, _ string) ([]byte, error) {
	return strconv.AppendInt(line, c.Rev, 10), nil
}

// open opens a book that keeps so many changes, and its feed.
func open(t *testing.T, keep int) (*netdb.Book, *Feed) {
	t.Helper()
	opts := netdbtest.Options()
	if keep > 0 {
		opts.KeepChanges = keep
	}
	b := netdbtest.OpenAt(t, filepath.Join(t.TempDir(), "book.db"), opts)
	netdbtest.Pool(t, b, "default", "10.8.0.0/16")
	return b, New(b, encode)
}

// churn makes n changes of a book, several at once.
func churn(t *testing.T, b *netdb.Book, n int) {
	t.Helper()
	const callers = 8
	var all sync.WaitGroup
	for c := range callers {
		all.Go(func() {
			for i := range n / callers {
				if _, err := netdbtest.TryReserve(b, b.Pools()[0], fmt.Sprint(b.Rev(), "-", c, "-", i), netdbtest.Policy); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
}

func read(t *testing.T, f *Feed, since int64) *Reader {
	t.Helper()
	r, err := f.Read(t.Context(), since, nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// upTo reads until a revision, and reports the first gap or repeat.
func upTo(ctx context.Context, r *Reader, revision int64) error {
	for want := r.At() + 1; want <= revision; {
		lines, err := r.Next(ctx)
		if err != nil {
			return err
		}
		for _, l := range lines {
			if l.Revision != want || string(l.JSON) != strconv.FormatInt(want, 10) {
				return fmt.Errorf("revision %d, %s, and should be %d", l.Revision, l.JSON, want)
			}
			want++
		}
	}
	return nil
}

// T9: readers that begin anywhere, rest, stop and resume see each change once and in
// order, whether it is still in memory or not; one that is stuck holds up neither the
// book nor another, and memory stays bounded.
func TestT9EachChangeOnce(t *testing.T) {
	t.Parallel()
	b, f := open(t, 0)
	f.keep = 200
	churn(t, b, 400)
	stuck := read(t, f, 0)
	defer stuck.Close()
	const changes = 2400
	last := b.Rev() + changes
	var readers sync.WaitGroup
	for i := range 12 {
		readers.Go(func() {
			rng := rand.New(rand.NewPCG(1, uint64(i)))
			at := rng.Int64N(400)
			for at < last {
				r := read(t, f, at)
				stop := min(last, at+1+rng.Int64N(600))
				if err := upTo(t.Context(), r, stop); err != nil {
					t.Errorf("reader %d: %v", i, err)
					at = last
				}
				at = max(at, r.At())
				r.Close()
			}
		})
	}
	churn(t, b, changes)
	readers.Wait()
	if n := len(f.lines); n > f.keep || n == 0 {
		t.Errorf("%d lines are in memory, of at most %d", n, f.keep)
	}
	if err := upTo(t.Context(), stuck, last); err != nil {
		t.Error("the stuck one: ", err)
	}
	if n := f.Readers(); n != 1 {
		t.Errorf("%d readers are counted", n)
	}
}

// What the history has not kept is refused: to one that begins there, and to one that
// was overtaken while it waited. So is a position that the book never had.
func TestCompacted(t *testing.T) {
	t.Parallel()
	b, f := open(t, 100)
	resting := read(t, f, b.Rev())
	defer resting.Close()
	for rounds := 1; ; rounds++ {
		churn(t, b, 800)
		if err := b.Tidy(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := b.Changes(t.Context(), resting.At(), 1); errors.Is(err, ipam.ErrPruned) {
			break
		}
		if rounds == 10 {
			t.Fatal("nothing is pruned")
		}
	}
	if _, err := resting.Next(t.Context()); !errors.Is(err, ErrCompacted) {
		t.Error(err)
	}
	for _, since := range []int64{-1, 0, b.Rev() + 1} {
		if _, err := f.Read(t.Context(), since, nil); !errors.Is(err, ErrCompacted) {
			t.Errorf("since %d: %v", since, err)
		}
	}
	if n := f.Readers(); n != 1 {
		t.Errorf("%d readers are counted", n)
	}
	r := read(t, f, b.Rev())
	defer r.Close()
	churn(t, b, 8)
	if err := upTo(t.Context(), r, b.Rev()); err != nil {
		t.Error(err)
	}
}

// A wait ends with its context, and with a change.
func TestNextWaits(t *testing.T) {
	t.Parallel()
	b, f := open(t, 0)
	r := read(t, f, b.Rev())
	defer r.Close()
	ctx, cancel := context.WithCancel(t.Context())
	got := make(chan error)
	go func() {
		_, err := r.Next(ctx)
		got <- err
	}()
	cancel()
	if err := <-got; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	go func() {
		lines, err := r.Next(t.Context())
		if err == nil && len(lines) != 1 {
			err = fmt.Errorf("%d lines", len(lines))
		}
		got <- err
	}()
	netdbtest.Reserve(t, b, "a")
	if err := <-got; err != nil {
		t.Error(err)
	}
}

// A batch and the memory are bounded in bytes; a line longer than that is given alone.
func TestBytesAreBounded(t *testing.T) {
	t.Parallel()
	b, _ := open(t, 0)
	long := strings.Repeat("x", 100<<10)
	f := New(b, func(line []byte, c *ipam.Change, _ string) ([]byte, error) {
		if c.Rev == 50 {
			return append(line, make([]byte, 1<<20)...), nil
		}
		return append(line, long...), nil
	})
	r := read(t, f, 0)
	defer r.Close()
	churn(t, b, 200)
	for r.At() < b.Rev() {
		lines, err := r.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		bytes := 0
		for _, l := range lines {
			bytes += len(l.JSON)
		}
		if bytes > batchBytes && len(lines) > 1 {
			t.Fatalf("%d lines of %d bytes", len(lines), bytes)
		}
	}
	if f.bytes > keepBytes || f.bytes == 0 {
		t.Errorf("%d bytes are in memory", f.bytes)
	}
}

// A change that cannot be encoded is an error, and is not left out.
func TestEncodeFails(t *testing.T) {
	t.Parallel()
	b, _ := open(t, 0)
	failed := errors.New("no")
	f := New(b, func([]byte, *ipam.Change, string) ([]byte, error) { return nil, failed })
	if _, err := f.Read(t.Context(), 0, nil); !errors.Is(err, failed) {
		t.Error(err)
	}
}

// What was encoded in the epoch of before is given to no reader of the next one, whether it is
// in memory or not: a book that is adopted goes on in another.
func TestLinesAreOfTheEpoch(t *testing.T) {
	t.Parallel()
	path, opts := filepath.Join(t.TempDir(), "book.db"), netdbtest.Options()
	opts.RunnerUID = "one"
	b := netdbtest.OpenAt(t, path, opts)
	netdbtest.Pool(t, b, "default", "10.8.0.0/16")
	churn(t, b, 2*fillLines)
	netdbtest.Close(t, b)
	opts.RunnerUID = "two"
	b = netdbtest.OpenAt(t, path, opts)
	f := New(b, func(line []byte, _ *ipam.Change, epoch string) ([]byte, error) { return append(line, epoch...), nil })
	for _, adopted := range []bool{false, true} {
		if adopted {
			if err := b.TakeOver(t.Context(), netdbtest.Who(ipam.ByOperator, ""), b.Epoch()); err != nil {
				t.Fatal(err)
			}
		}
		for _, since := range []int64{b.Rev() - 10, 0} {
			r := read(t, f, since)
			for r.At() < b.Rev() {
				lines, err := r.Next(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				for _, l := range lines {
					if string(l.JSON) != b.Epoch() {
						t.Fatalf("adopted: %v; revision %d behind %d is of epoch %s, and the book of %s", adopted, l.Revision, since, l.JSON, b.Epoch())
					}
				}
			}
			r.Close()
		}
	}
}
