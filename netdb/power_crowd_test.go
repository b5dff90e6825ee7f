package netdb_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/ipamd/ipamd/internal/faultfs"
	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/netdb"
	. "github.com/ipamd/ipamd/netdb/netdbtest"
)

// A crowd is callers that come at once and share commits: one of them commits,
// and the others are answered for it.
type crowd struct {
	life
	shared int // commits with more than one caller in them
}

// answered is what one caller was answered, as it notes it in the disk's record.
type answered struct {
	Rev   int64
	Lease string
	State ipam.State
}

func newCrowd(t *testing.T, synchronous string, callers, rounds int) *crowd {
	t.Helper()
	c := &crowd{life: life{disk: faultfs.Mount(t, "book.db-shm"), opts: Options()}}
	c.opts.Synchronous = synchronous
	c.opts.OnCommit = func(_ time.Duration, batch int) {
		if batch > 1 {
			c.shared++
		}
	}
	c.open(t)
	Pool(t, c.book, "default", "10.8.64.0/24")
	var all sync.WaitGroup
	for i := range callers {
		all.Go(func() {
			for round := range rounds {
				if err := c.live(fmt.Sprintf("s%d-%d", i, round)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	return c
}

// live is a lease's life, with each answer noted as it comes.
func (c *crowd) live(sandbox string) error {
	note := func(l *ipam.Lease, err error) (*ipam.Lease, error) {
		if err != nil {
			return nil, err
		}
		reply, err := json.Marshal(answered{l.Rev, l.ID, l.State})
		c.disk.Note(string(reply))
		return l, err
	}
	l, err := note(TryReserve(c.book, c.book.Pools()[0], sandbox, Policy))
	if err != nil {
		return err
	}
	if l, err = note(c.book.Bind(ctx, client, l.ID, 0, ipam.Binding{MAC: "02:00:00:00:00:01"})); err != nil {
		return err
	}
	if l, err = note(c.book.Release(ctx, client, l.ID, "", 0)); err != nil {
		return err
	}
	_, err = note(c.book.Confirm(ctx, watchdog, l.ID, l.Rev, nil))
	return err
}

// cutAll cuts the power behind each operation and each answer, and counts the
// cuts that took some of what had been answered.
func (c *crowd) cutAll(t *testing.T) (cuts, answers, lost int) {
	t.Helper()
	tmpfs := memory(t)
	found := make(map[string]map[int64]answered) // by the image, the changes in it
	var reply []answered
	for replay := c.disk.Replay(); ; {
		op, more := replay.Step()
		if !more {
			return cuts, len(reply), lost
		}
		if op.Kind == faultfs.Note {
			var a answered
			if err := json.Unmarshal([]byte(op.Name), &a); err != nil {
				t.Fatal(err)
			}
			reply = append(reply, a)
		}
		cuts++
		image := replay.Cut(nil)
		sum := image.Sum()
		if found[sum] == nil {
			changes, err := c.read(filepath.Join(tmpfs, "disk"), image)
			if err != nil {
				t.Fatalf("power cut behind operation %d (%s): %v", replay.Done(), op, err)
			}
			found[sum] = changes
		}
		for _, a := range reply {
			if found[sum][a.Rev] != a {
				lost++
				break
			}
		}
	}
}

// read opens what a power loss left, wants it to be whole, and returns the
// changes in it by their revision.
func (c *crowd) read(dir string, image faultfs.Image) (_ map[int64]answered, err error) {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if err := lay(image, dir); err != nil {
		return nil, err
	}
	opts := c.opts
	opts.OnCommit = nil
	b, err := netdb.Open(filepath.Join(dir, "book.db"), opts)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	if broken, err := b.Check(ctx); err != nil || len(broken) > 0 {
		return nil, fmt.Errorf("%v, %w", broken, err)
	}
	history, err := b.History(ctx, ipam.Query{Limit: 1 << 20})
	if err != nil {
		return nil, err
	}
	changes := make(map[int64]answered)
	for _, h := range history {
		changes[h.Rev] = answered{h.Rev, h.LeaseID, h.To}
	}
	return changes, nil
}

// L16: callers come at once, share commits, and answers come while the next
// commit is under way. The power goes behind every operation and every answer:
// whatever anybody was answered by then is there, also what another committed.
func TestL16PowerLossInACrowd(t *testing.T) {
	c := newCrowd(t, "full", 8, 5)
	cuts, answers, lost := c.cutAll(t)
	t.Logf("%d cuts, %d answers, %d commits shared", cuts, answers, c.shared)
	if lost > 0 || answers != 8*5*4 || c.shared == 0 {
		t.Errorf("%d of %d cuts lost what was answered", lost, cuts)
	}
}

// L16: with synchronous = "normal" the same cuts lose answers.
func TestL16SynchronousNormalLosesACrowdsLast(t *testing.T) {
	c := newCrowd(t, "normal", 8, 2)
	cuts, answers, lost := c.cutAll(t)
	t.Logf("%d cuts, %d answers, %d with a loss", cuts, answers, lost)
	if lost == 0 {
		t.Error("no cut lost anything: the disk does not forget")
	}
}
