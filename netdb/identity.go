package netdb

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/google/uuid"

	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/netdb/index"
)

// A continuity says how a book goes on from when it was last open. It is set while the book is opened.
type continuity struct {
	rebooted bool   // since the book was last opened
	restored string // why it has another epoch since this opening, "" when it has not
	lost     int64  // revisions that were acknowledged and are not there
}

// Identity says whose the book is now.
func (b *Book) Identity() ipam.BookIdentity { return b.store.whose() }

// whose is the identity as it was read, or committed last.
func (s *store) whose() ipam.BookIdentity {
	if h := s.identity.Load(); h != nil {
		return *h
	}
	return ipam.BookIdentity{}
}

// CheckIdentity returns nil when the book may be this runner's, and an error that
// names both and is [ErrIdentity] when Options.RunnerUID is given and another
// than the book's, or when the machine's id is known on both sides and differs:
// the disk was cloned or moved, and the leases say nothing about this host. No
// change of such a book is committed but [Book.TakeOver].
func (b *Book) CheckIdentity() error { return b.store.foreign() }

func (s *store) foreign() error {
	is := s.whose()
	if want := s.opts.RunnerUID; want != "" && want != is.RunnerUID {
		return fmt.Errorf("%w: it is runner %q's, this is runner %q", ErrIdentity, is.RunnerUID, want)
	}
	if here := s.opts.MachineID; here != "" && is.MachineID != "" && here != is.MachineID {
		return fmt.Errorf("%w: it was made on machine %s, this is machine %s", ErrIdentity, is.MachineID, here)
	}
	return nil
}

// Successor says whose the book would be after a [Book.TakeOver], but for the epoch.
// Without Options.RunnerUID its runner gets a new uid: the book may be a copy, and
// the runner that it was copied from may live on.
func (b *Book) Successor() ipam.BookIdentity {
	o := b.store.opts
	return ipam.BookIdentity{RunnerUID: o.RunnerUID, MachineID: cmp.Or(o.MachineID, b.store.whose().MachineID)}
}

// TakeOver makes the book this runner's, in another epoch, and records whose it was: one
// transaction. epoch is that of the book that the caller looked at; in another one the
// answer is [ipam.ErrStale], so that a repeated request takes no other book. A book that
// is this runner's already is [ipam.ErrState].
//
// No address moves: what the former runner's leases say is compared with what lives
// here by the passes that follow, and an address becomes free in no other way than
// each lease's does.
func (b *Book) TakeOver(ctx context.Context, who ipam.Who, epoch string) error {
	return b.writer.update(ctx, func(t *tx) error {
		was := t.store.whose()
		switch {
		case epoch != was.Epoch:
			return fmt.Errorf("adopt the book: %w: its epoch is %s, not %s", ipam.ErrStale, was.Epoch, epoch)
		case t.store.foreign() == nil:
			return fmt.Errorf("adopt the book: %w: it is this runner's already", ipam.ErrState)
		case len(t.Steps()) > 0:
			return fmt.Errorf("adopt the book: %w: it is being adopted", ipam.ErrState)
		}
		is := b.Successor()
		is.Epoch, is.RunnerUID = uuid.NewString(), cmp.Or(is.RunnerUID, uuid.NewString())
		who := who
		who.Reason = "adopted"
		c := t.change(ipam.OfBook, who)
		c.Evidence = asJSON([]map[string]string{
			{"was": was.Epoch, "is": is.Epoch, "why": "it was adopted"},
			{"was": was.RunnerUID, "is": is.RunnerUID, "why": "its runner"},
			{"was": was.MachineID, "is": is.MachineID, "why": "its machine"}})
		t.Stage(index.Step{Identity: &is, Change: c})
		return nil
	})
}

// readIdentity reads whose book this is, and its last revision.
func (s *store) readIdentity(ctx context.Context) (rev int64, err error) {
	var booted string
	var h ipam.BookIdentity
	err = s.Conn.QueryRowContext(ctx, `SELECT epoch, runner_uid, machine_id, boot_id, `+lastRev+` FROM book`).
		Scan(&h.Epoch, &h.RunnerUID, &h.MachineID, &booted, &rev)
	s.identity.Store(&h)
	s.rebooted = booted != s.Boot
	return rev, err
}

// identify reads whose book this is, and writes it into a new one. The boot is
// noted, and that is all that a new one changes here: what is gone with the
// old one is for the witnesses to say. A book that was restored gets another epoch.
func (o *opening) identify(ctx context.Context) error {
	rev, err := o.readIdentity(ctx)
	if errors.Is(err, sql.ErrNoRows) {
		now, runner := o.clock.Now(), o.opts.RunnerUID
		if runner == "" {
			runner = uuid.NewString()
		}
		if _, err := o.Conn.ExecContext(ctx, `INSERT INTO book VALUES (1, ?, ?, ?, ?, '', ?)`,
			uuid.NewString(), runner, o.opts.MachineID, now.BootID, now.Wall.UnixNano()); err != nil {
			return o.Classify("write the identity", err)
		}
		rev, err = o.readIdentity(ctx)
	}
	if err != nil {
		return o.Classify("read the identity", err)
	}
	if o.restored != "" {
		if err := o.beginEpoch(ctx, rev+1); err != nil {
			return o.Classify("begin another epoch", err)
		}
	}
	if !o.rebooted {
		return nil
	}
	_, err = o.Conn.ExecContext(ctx, `UPDATE book SET boot_id = ?`, o.Boot)
	if err = o.Classify("note the boot", err); !errors.Is(err, ErrDamaged) &&
		(errors.Is(err, ErrBusy) || errors.Is(err, ErrReadOnly)) {
		return nil // a full disk can still be read; the next opening notes it
	}
	return err
}

// beginEpoch gives the book another epoch, in which its revisions count on, and
// records why.
func (o *opening) beginEpoch(ctx context.Context, rev int64) error {
	is := o.whose()
	was, epoch := is.Epoch, uuid.NewString()
	evidence := asJSON([]map[string]string{{"was": was, "is": epoch, "why": o.restored}})
	c := ipam.Change{Rev: rev, At: o.clock.Now(), Subject: ipam.OfBook, Who: ipam.Who{Actor: ipam.ByOperator, Reason: "restored"}, Evidence: evidence}
	tx, err := o.Conn.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, `UPDATE book SET epoch = ?`, epoch)
	if err == nil {
		_, err = tx.ExecContext(ctx, insertChange, changeRow(&c, nil, o.clock.Uptime())...)
	}
	if err == nil {
		err = tx.Commit()
	}
	if err != nil {
		return errors.Join(err, tx.Rollback())
	}
	is.Epoch = epoch
	o.identity.Store(&is)
	o.idx = nil // it was read before
	return nil
}

// NoteRuntime records which container runtime answers. The first one is noted
// at once, and another one while no lease that is open or releasing records a
// container: then there is nothing that it could be wrong about. Else the
// answer is [ipam.ErrOtherRuntime], unless anyway says that a person has decided.
//
// A runtime that was pointed elsewhere, or that lost its disk, answers of every
// container that it is not there, each by a look-up, and all of them may run.
func (b *Book) NoteRuntime(ctx context.Context, who ipam.Who, id string, anyway bool) error {
	if id == "" {
		return ipam.Invalid("runtime id", "is empty")
	}
	return b.writer.update(ctx, func(t *tx) error {
		was := t.Runtime()
		if was == id {
			return nil
		}
		who := who
		who.Reason = "runtime_replaced"
		switch {
		case was == "":
			who.Reason = "runtime_met"
		case !anyway && recordsContainers(&t.View):
			return fmt.Errorf("note runtime %s: %w, %s", id, ipam.ErrOtherRuntime, was)
		}
		c := t.change(ipam.OfBook, who)
		c.Evidence = asJSON([]map[string]string{{"was": was, "is": id}})
		t.Stage(index.Step{Runtime: id, Change: c})
		return nil
	})
}

// recordsContainers reports whether any lease that is open or releasing records a
// container.
func recordsContainers(v *index.View) bool {
	for l := range v.Rows() {
		if (l.State.Open() || l.State == ipam.Releasing) && len(l.Containers) > 0 {
			return true
		}
	}
	return false
}
