package netdb_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"pgregory.net/rapid"

	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/netdb"
	. "github.com/ipamd/ipamd/netdb/netdbtest"
)

// A credit is a moment as the book dates it: how much has certainly passed in an
// era, which is a boot or a part of one.
type credit struct {
	era  int
	seen time.Duration
}

// passing is the model of what a book may count as passed (F20). While it is open,
// that is what truly passes, whatever is stepped. Between its last change and the
// next opening it is what the uptime and the wall clock both say, and nothing of
// what came before where the uptime went backwards or the machine was started anew.
type passing struct {
	clock *Clock
	credit
	eras int
	last struct { // the last change
		credit
		at ipam.Stamp // by the machine's clocks
	}
	read ipam.Stamp // at the last step
}

func newPassing(c *Clock) *passing {
	p := &passing{clock: c, read: c.Stamp}
	p.seen = c.Boottime
	p.changed()
	return p
}

// now is the present moment.
func (p *passing) now() credit {
	p.seen += p.clock.Mono - p.read.Mono
	p.read = p.clock.Stamp
	return p.credit
}

// since is for how long something surely stands.
func (p *passing) since(then credit) time.Duration {
	now := p.now()
	if now.era != then.era {
		return now.seen
	}
	return now.seen - then.seen
}

// changed notes the book's last change.
func (p *passing) changed() { p.last.credit, p.last.at = p.now(), p.clock.Stamp }

// reopen goes on from the last change.
func (p *passing) reopen() {
	now, was := p.clock.Stamp, p.last.at
	wall := now.Wall.Sub(was.Wall)
	switch {
	case now.BootID == was.BootID && now.Boottime >= was.Boottime:
		p.credit = credit{p.last.era, p.last.seen + max(0, min(now.Boottime-was.Boottime, wall))}
	case now.BootID == was.BootID, wall >= 0 && now.Boottime > wall+time.Minute: // which cannot be
		p.eras++
		p.credit = credit{p.eras, 0}
	default:
		p.eras++
		p.credit = credit{p.eras, max(0, min(now.Boottime, wall))}
	}
	p.read = now
}

// stepUptime moves CLOCK_BOOTTIME alone, as a restored machine or a time namespace
// does.
func (p *passing) stepUptime(t *rapid.T) {
	p.now()
	p.clock.Boottime = max(0, p.clock.Boottime+time.Duration(rapid.IntRange(-50, 50).Draw(t, "hours of uptime"))*time.Hour)
	p.read = p.clock.Stamp
}

// whileDown is what happens to the clocks between a closing and an opening.
func (p *passing) whileDown(t *rapid.T) {
	p.clock.Pass(time.Duration(rapid.IntRange(0, 40).Draw(t, "minutes down")) * time.Minute)
	switch rapid.IntRange(0, 3).Draw(t, "clocks while it is down") {
	case 1:
		p.stepUptime(t)
	case 2:
		p.clock.Reboot(fmt.Sprint("boot ", p.eras), time.Duration(rapid.IntRange(0, 40).Draw(t, "minutes up"))*time.Minute)
	case 3: // another boot's id, and the uptime goes on
		p.clock.BootID = fmt.Sprint("no boot ", p.eras)
	}
}

// away are files of an open book that do not lie at their places.
type away struct {
	moved     []string
	indexOnly bool // which no change is acknowledged in
}

// takeAway moves some of a book's files, or their folder.
func takeAway(t *rapid.T, path string) away {
	index := path + "-shm"
	all := [][]string{{path}, {path + "-wal"}, {index}, {path, path + "-wal"}, {path, path + "-wal", index}, {filepath.Dir(path)}}
	out := away{moved: rapid.SampledFrom(all).Draw(t, "away")}
	out.indexOnly = out.moved[0] == index
	for _, name := range out.moved {
		if err := os.Rename(name, name+".away"); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

func (a away) putBack(t *rapid.T) {
	for _, name := range a.moved {
		if err := os.Rename(name+".away", name); err != nil {
			t.Fatal(err)
		}
	}
}

// another opens a book that is open, by one of its names, and has to be refused.
func another(t *rapid.T, path string) {
	other := filepath.Join(filepath.Dir(path), "..", "other.db")
	name, link := path, rapid.SampledFrom([]func(string, string) error{nil, os.Symlink, os.Link}).Draw(t, "name")
	if link != nil {
		if name = other; link(path, other) != nil {
			t.Fatalf("no link %s", other)
		}
	}
	if b, err := netdb.Open(name, Options()); !errors.Is(err, netdb.ErrLocked) {
		t.Fatalf("%s was opened beside %s: %v, %v", name, path, b, err)
	}
	if link != nil {
		if err := os.Remove(other); err != nil {
			t.Fatal(err)
		}
	}
}
