// Package adoption takes over a book that was made for another runner or on another
// machine: it shows what its leases are worth here, makes it this runner's when an
// operator confirms that very book, and has the daemon wait until then.
//
// It moves no address. A lease of the former runner whose workload is not here stays
// what it is, and ends in the way of every lease: absent for long enough, released by
// the reconciler with its brakes, confirmed by the runtime and by the kernel. The book
// alone cannot say whether its workload died with the former machine or is merely not
// seen yet, and an address that is freed on that guess is the incident over again.
package adoption

import (
	"context"
	"fmt"
	"log/slog"
	"sync"

	"github.com/ipamd/ipamd/api"
	"github.com/ipamd/ipamd/census"
	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/netdb"
	"github.com/ipamd/ipamd/workload"
)

// Config says what is adopted. Every field is needed.
type Config struct {
	Book  *netdb.Book
	Board *census.Board
	Plan  func(context.Context) (api.Report, error) // what a pass would do now
	// Pools makes the configuration's pools in the book. While the book is another runner's it changes nothing:
	// its error is netdb.ErrIdentity where that alone is in the way, else what would be.
	Pools func(context.Context) error
	Log   *slog.Logger
}

// An Adoption is safe for concurrent use.
type Adoption struct {
	Config
	once sync.Once
	done chan struct{} // closed when the book was adopted
}

// New returns one of a book that is open.
func New(c Config) *Adoption { return &Adoption{Config: c, done: make(chan struct{})} }

// Await waits until the book is this runner's, or ctx ends, which is its error.
func (a *Adoption) Await(ctx context.Context) error {
	if a.Book.CheckIdentity() == nil {
		return nil
	}
	select {
	case <-a.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Look shows whose the book is, and what its leases are worth here. It changes nothing.
func (a *Adoption) Look(ctx context.Context) (api.AdoptBookReply, error) {
	plan, err := a.Plan(ctx) // it reads every witness anew
	if err != nil {
		return api.AdoptBookReply{}, fmt.Errorf("look at what lives here: %w", err)
	}
	out := a.reply()
	out.Plan = &plan
	if err := a.Book.CheckIdentity(); err != nil {
		out.Mismatch = err.Error()
		rows, blocked := a.refused(ctx)
		if blocked != nil {
			out.Blocked = blocked.Error()
		}
		out.Refused, out.Refusals = len(rows), append(out.Refusals, rows[:min(len(rows), api.MostBookLeases)]...)
	}
	rows, _ := a.Book.Leases()
	leases, seen, running := workload.NewLeases(rows), a.Board.Census(), a.Board.By(census.Runtime)
	for _, l := range rows {
		if !l.State.Open() && l.State != ipam.Releasing {
			out.Withheld++
			continue
		}
		row := api.BookLease{Address: l.Text(), State: api.State(l.State), Sandbox: l.Sandbox, LeaseID: l.ID, Standing: "not_seen"}
		at := workload.SeenOf(seen, l)
		live, others := leases.Live(l, at, running), leases.Strangers(l, at)
		switch {
		case len(others) > 0:
			row.Standing, row.Detail = "disputed", fmt.Sprintf("the %s witness sees another with it%s", others[0].Witness, others[0].Where())
			out.Disputed++
		case len(live) > 0:
			row.Standing = "live"
			out.Live++
		case len(at) > 0:
			row.Standing, row.Detail = "unproven", fmt.Sprintf("the %s witness sees its address%s, and nothing shows that this is its own workload", at[0].Witness, at[0].Where())
			out.Unproven++
		default:
			out.NotSeen++
		}
		if len(out.Leases) < api.MostBookLeases {
			out.Leases = append(out.Leases, row)
		}
	}
	return out, nil
}

// Confirm makes the book this runner's, if it is of the epoch that was looked at. A
// pool of the configuration that the book's do not leave room for refuses it before
// anything is written: its address would be in two pools.
func (a *Adoption) Confirm(ctx context.Context, who ipam.Who, epoch string) (api.AdoptBookReply, error) {
	was := a.Book.Identity()
	if a.Book.CheckIdentity() != nil && epoch == was.Epoch {
		if rows, err := a.refused(ctx); err != nil {
			return api.AdoptBookReply{}, fmt.Errorf("adopt the book: %w", inTheWay(rows, err))
		}
	}
	if err := a.Book.TakeOver(ctx, who, epoch); err != nil {
		return api.AdoptBookReply{}, err
	}
	is := a.Book.Identity()
	a.Log.Warn("the book was adopted", "was_runner", was.RunnerUID, "was_machine", was.MachineID, "was_epoch", was.Epoch,
		"runner", is.RunnerUID, "machine", is.MachineID, "epoch", is.Epoch, "peer", who.Peer)
	if err := a.Pools(ctx); err != nil {
		a.Log.Error("the configuration's pools are not all in the adopted book", "err", err, "next", "systemctl restart ipamd")
	}
	a.once.Do(func() { close(a.done) })
	out := a.reply()
	out.Adopted = true
	return out, nil
}

func (a *Adoption) rows() []*ipam.Lease {
	rows, _ := a.Book.Leases()
	return rows
}

func (a *Adoption) reply() api.AdoptBookReply {
	is, next := a.Book.Identity(), a.Book.Successor()
	return api.AdoptBookReply{
		Book:   api.BookIdentity{RunnerUID: is.RunnerUID, MachineID: is.MachineID, Epoch: is.Epoch},
		Host:   api.BookIdentity{RunnerUID: next.RunnerUID, MachineID: next.MachineID},
		Leases: []api.BookLease{}, Refusals: []api.BookRefusal{}, Revision: a.Book.Rev(), Epoch: is.Epoch,
	}
}
