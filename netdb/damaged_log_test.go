package netdb_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/netdb"
	. "github.com/ipamd/ipamd/netdb/netdbtest"
	"github.com/ipamd/ipamd/netdb/salvage"
)

const frameSize = 24 + 4096

// A logged is a book that was killed with its log beside it, and what each
// revision had.
type logged struct {
	path   string
	log    []byte
	acked  []*ipam.Lease // one in each commit, the last ones of the log
	frames []int         // the last frame of the commit of each, from 1
}

// newLogged makes a book whose folded part has one lease and whose log has n.
func newLogged(t *testing.T, opts netdb.Options, n int) *logged {
	t.Helper()
	path := filepath.Join(t.TempDir(), "book.db")
	b := OpenAt(t, path, opts)
	Pool(t, b, "default", "10.8.64.0/24")
	Reserve(t, b, "folded")
	if err := b.Fold(ctx); err != nil {
		t.Fatal(err)
	}
	l := new(logged)
	for i := range n {
		l.acked = append(l.acked, Reserve(t, b, fmt.Sprint("s", i)))
		st, err := os.Stat(path + "-wal")
		if err != nil {
			t.Fatal(err)
		}
		l.frames = append(l.frames, lastFrame(t, path+"-wal", st.Size()))
	}
	l.path = killed(t, path)
	var err error
	if l.log, err = os.ReadFile(l.path + "-wal"); err != nil {
		t.Fatal(err)
	}
	return l
}

// lastFrame counts the frames that have the salts of the log's header: behind a fold
// a log begins anew over the old one.
func lastFrame(t *testing.T, path string, size int64) (n int) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for at := 32; at+frameSize <= int(size) && bytes.Equal(data[at+8:at+16], data[16:24]); at += frameSize {
		n++
	}
	return n
}

// put writes what the test made of the log.
func (l *logged) put(t *testing.T, log []byte) {
	t.Helper()
	if err := os.WriteFile(l.path+"-wal", log, 0o600); err != nil {
		t.Fatal(err)
	}
}

// F14, L13: each kind of damage to each commit of a log, the last one too, is refused
// by the start and by a check, which name the file and the next command, and change
// nothing. Without the note of the last revision beside it, what breaks the last
// commit alone looks like a commit that was cut by a power loss, and only that.
func TestF14ADamagedLogIsRefused(t *testing.T) {
	const commits = 6
	l := newLogged(t, Options(), commits)
	end := 32 + l.frames[commits-1]*frameSize
	mark, err := os.ReadFile(l.path + "-mark")
	if err != nil {
		t.Fatal(err)
	}
	at := func(frame int) int { return 32 + (frame-1)*frameSize }
	first := func(commit int) int {
		if commit == 0 {
			return 1
		}
		return l.frames[commit-1] + 1
	}
	random := rand.New(rand.NewPCG(1, 1))
	damages := map[string]func(log []byte, frame int){
		"a bit of the page":     func(log []byte, f int) { log[at(f)+24+random.IntN(4096)] ^= 1 << random.IntN(8) },
		"its page number":       func(log []byte, f int) { log[at(f)+3] ^= 0x40 },
		"its commit size":       func(log []byte, f int) { log[at(f)+7] ^= 0x40 },
		"its salt":              func(log []byte, f int) { log[at(f)+9] ^= 0x40 },
		"its sum":               func(log []byte, f int) { log[at(f)+17] ^= 0x40 },
		"a sector that is zero": func(log []byte, f int) { s := (at(f) + random.IntN(frameSize)) &^ 511; clear(log[s : s+512]) },
		"a page that is zero":   func(log []byte, f int) { clear(log[at(f) : at(f)+frameSize]) },
		"cut off":               func(log []byte, f int) { clear(log[at(f):]) },
	}
	tries, missed := 0, make(map[string]int)
	for name, damage := range damages {
		for commit := range commits {
			frame := first(commit) + random.IntN(l.frames[commit]-first(commit)+1)
			log := bytes.Clone(l.log)
			damage(log, frame)
			if bytes.Equal(log[:end], l.log[:end]) {
				continue
			}
			l.put(t, log)
			before := contents(t, filepath.Dir(l.path))
			for _, readOnly := range []bool{true, false} {
				opts := Options()
				opts.ReadOnly = readOnly
				b, err := netdb.Open(l.path, opts)
				if err == nil {
					Close(t, b)
					t.Fatalf("%s of frame %d, commit %d: it opened", name, frame, commit)
				}
				if !errors.Is(err, netdb.ErrDamaged) || !strings.Contains(err.Error(), l.path+"-wal") || !strings.Contains(err.Error(), `"ipamd rebuild"`) {
					t.Errorf("%s of frame %d, commit %d: %v", name, frame, commit, err)
				}
			}
			if after := contents(t, filepath.Dir(l.path)); fmt.Sprint(after) != fmt.Sprint(before) {
				t.Errorf("%s of frame %d: the refusal changed it", name, frame)
			}
			// and without the mark
			if err := os.Remove(l.path + "-mark"); err != nil {
				t.Fatal(err)
			}
			opts := Options()
			opts.ReadOnly = true
			tries++
			if b, err := netdb.Open(l.path, opts); err == nil {
				Close(t, b)
				missed[fmt.Sprintf("commit %d of %d", commit+1, commits)]++
				if sure := commit < commits-2 && name != "cut off"; sure {
					t.Errorf("without the mark, %s of frame %d, commit %d: it opened", name, frame, commit)
				}
			} else if !errors.Is(err, netdb.ErrDamaged) {
				t.Error(err)
			}
			if err := os.WriteFile(l.path+"-mark", mark, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	t.Logf("without the mark, %d damages: not seen in %v", tries, missed)
	l.put(t, l.log)
	b := OpenAt(t, l.path, Options())
	for _, a := range l.acked {
		if _, err := b.Lease(a.ID); err != nil {
			t.Errorf("%s: %v", a.Addr, err)
		}
	}
}

// F14: what lies behind a broken frame is salvaged all the same, so that a rebuild
// keeps those addresses back: each commit behind a broken one, and the broken one but
// for its page; with the header of the log gone, too.
func TestF14SalvageBehindABrokenFrame(t *testing.T) {
	const commits = 5
	l := newLogged(t, Options(), commits)
	for name, tt := range map[string]struct {
		at   int // the byte
		lost int // leases at most
	}{
		"a page of the first commit":     {32 + 24 + 4095, 0},
		"the page number of a frame":     {32 + (l.frames[1]-1)*frameSize + 1, 1},
		"the salt of a frame":            {32 + (l.frames[1]-1)*frameSize + 9, 1},
		"the sum of the last frame":      {32 + (l.frames[commits-1]-1)*frameSize + 16, 0},
		"the header of the log, a salt":  {17, 0},
		"the header of the log, its sum": {25, 0},
	} {
		t.Run(name, func(t *testing.T) {
			log := bytes.Clone(l.log)
			log[tt.at] ^= 0x20
			l.put(t, log)
			before := contents(t, filepath.Dir(l.path))
			s, err := salvage.Book(l.path)
			if err != nil || len(s.Problems) == 0 || s.Epoch == "" {
				t.Fatalf("%+v, %v", s, err)
			}
			there := make(map[string]bool)
			for _, found := range s.Leases {
				there[found.ID] = true
			}
			lost := 0
			for _, a := range l.acked {
				if !there[a.ID] {
					lost++
				}
			}
			if lost > tt.lost {
				t.Errorf("%d of %d are lost: %q", lost, commits, s.Problems)
			}
			if after := contents(t, filepath.Dir(l.path)); fmt.Sprint(after) != fmt.Sprint(before) {
				t.Error("it changed the book")
			}
		})
	}
}

// F14: with synchronous = "normal" a power loss may leave later commits without an
// earlier one. What is left is opened, in another epoch, and it is said why. Within
// the boot no power was lost, and it is damage.
func TestF14SynchronousNormal(t *testing.T) {
	clock := NewClock()
	opts := Options()
	opts.Synchronous, opts.Now = "normal", clock.Now
	l := newLogged(t, opts, 5)
	log := bytes.Clone(l.log)
	log[32+(l.frames[1]-1)*frameSize+100] ^= 1
	l.put(t, log)
	_, err := netdb.Open(l.path, opts)
	wantErr(t, err, netdb.ErrDamaged)
	clock.BootID = "two"
	was := epochOf(t, l.path, opts)
	b := OpenAt(t, l.path, opts)
	if b.Epoch() == was || !strings.Contains(b.Info().Restored, "was acknowledged") {
		t.Errorf("epoch %s was %s: %q", b.Epoch(), was, b.Info().Restored)
	}
	if _, err := b.Lease(l.acked[0].ID); err != nil {
		t.Error(err)
	}
}

func epochOf(t *testing.T, path string, opts netdb.Options) string {
	t.Helper()
	opts.ReadOnly = true
	b, err := netdb.Open(path, opts)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	return b.Epoch()
}

// F14: a power loss with synchronous = "normal" leaves commits behind a torn frame. The
// start behind it goes on in another epoch, and what it acknowledges is there behind a
// kill: the commits that were left are not taken for acknowledged ones of this boot.
// Nor are those that were never synced once the next start says "full".
func TestF14WhatAPowerLossLeftIsNoDamageLater(t *testing.T) {
	for _, tt := range []struct {
		name         string
		before, then string // synchronous, behind the first kill or power loss and behind it
		torn         bool   // before the first start, else before the second
	}{
		{"normal", "normal", "normal", true},
		{"normal, then full", "normal", "full", true},
		{"full behind a kill, and then a power loss", "normal", "full", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			clock, opts := NewClock(), Options()
			opts.Now, opts.Synchronous = clock.Now, tt.before
			l := newLogged(t, opts, 6)
			tear := func(path string) {
				log, err := os.ReadFile(path + "-wal")
				if err != nil {
					t.Fatal(err)
				}
				at := 32 + l.frames[1]*frameSize
				if len(log) < at+frameSize {
					return // it is folded, and began anew
				}
				clear(log[at : at+frameSize])
				if err := os.WriteFile(path+"-wal", log, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			path := l.path
			if tt.torn {
				tear(path)
				clock.Reboot("two", time.Minute)
			}
			opts.Synchronous = tt.then
			b, err := netdb.Open(path, opts)
			if err != nil {
				t.Fatal(err)
			}
			var acked []*ipam.Lease
			if tt.torn {
				acked = append(acked, Reserve(t, b, "behind the power loss"))
			}
			next := killed(t, path)
			if err := b.Close(); err != nil {
				t.Fatal(err)
			}
			if !tt.torn {
				tear(next)
				clock.Reboot("two", time.Minute)
				acked = l.acked[:2]
			}
			b, err = netdb.Open(next, opts)
			if err != nil {
				t.Fatal(err)
			}
			defer Close(t, b)
			for _, a := range acked {
				if got, ok := b.At(a.Addr); !ok || got.ID != a.ID {
					t.Errorf("%s, which was acknowledged, is %+v", a.Addr, got)
				}
			}
		})
	}
}
