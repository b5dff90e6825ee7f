package netdb

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/google/uuid"
)

// Identity returns nil when the book may be this runner's, and an error that
// names both and is [ErrIdentity] when Options.RunnerUID is given and another
// than the book's, or when the machine's id is known on both sides and differs:
// the disk was cloned or moved, and the leases say nothing about this host.
func (b *Book) Identity() error {
	if want := b.opts.RunnerUID; want != "" && want != b.runnerUID {
		return fmt.Errorf("%w: it is runner %q's, this is runner %q", ErrIdentity, b.runnerUID, want)
	}
	if here := b.opts.MachineID; here != "" && b.machineID != "" && here != b.machineID {
		return fmt.Errorf("%w: it was made on machine %s, this is machine %s", ErrIdentity, b.machineID, here)
	}
	return nil
}

// identify reads whose book this is, and writes it into a new one. The boot is
// noted, and that is all that a new one changes here: what is gone with the
// old one is for the witnesses to say.
func (b *Book) identify(ctx context.Context) error {
	now := b.opts.Now()
	b.bootID = now.BootID
	var booted string
	read := func() error {
		return b.conn.QueryRowContext(ctx, `SELECT epoch, runner_uid, machine_id, boot_id FROM book`).
			Scan(&b.epoch, &b.runnerUID, &b.machineID, &booted)
	}
	err := read()
	if errors.Is(err, sql.ErrNoRows) && !b.opts.ReadOnly {
		runner := b.opts.RunnerUID
		if runner == "" {
			runner = uuid.NewString()
		}
		if _, err := b.conn.ExecContext(ctx, `INSERT INTO book VALUES (1, ?, ?, ?, ?, '', ?)`,
			uuid.NewString(), runner, b.opts.MachineID, now.BootID, now.Wall.UnixNano()); err != nil {
			return b.classify("write the identity", err)
		}
		err = read()
	}
	if err != nil {
		return b.classify("read the identity", err)
	}
	if b.rebooted = booted != b.bootID; !b.rebooted || b.opts.ReadOnly {
		return nil
	}
	_, err = b.conn.ExecContext(ctx, `UPDATE book SET boot_id = ?`, b.bootID)
	if err = b.classify("note the boot", err); !errors.Is(err, ErrDamaged) &&
		(errors.Is(err, ErrBusy) || errors.Is(err, ErrReadOnly)) {
		return nil // a full disk keeps nobody from reading; the next opening notes it
	}
	return err
}
