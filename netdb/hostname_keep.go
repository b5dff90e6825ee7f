package netdb

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
)

// KeepHostName gives a host interface name that another book had leased to an interface of
// a sandbox to that interface, beside the row by which it holds it here: a lease, or an
// address that is quarantined for it. who.Reason and who.Note are not recorded; those of the
// row stay. Errors: [ErrNotFound] (it has no row), [ErrNameTaken], [ErrState] (it has
// another name), [FieldError].
func (b *Book) KeepHostName(ctx context.Context, who Who, n HostName) error {
	if err := cmp.Or(checkName("uid", n.UID), checkInterface(n.Interface), checkHostName(n.Name)); err != nil {
		return err
	}
	_, err := change(ctx, b.writer, func(t *tx) (*Lease, error) {
		rows := t.rowsOf(n.link())
		if len(rows) == 0 {
			return nil, fmt.Errorf("host interface name %s: %w: sandbox uid %q has no address for %s", n.Name, ErrNotFound, n.UID, n.Interface)
		}
		l := rows[0]
		given, err := t.nameLink(l, Naming{Want: n.Name, Name: n.Name})
		if given == nil || err != nil {
			return l, err
		}
		var evidence json.RawMessage
		if who.Actor, who.Reason, who.Note = ByReconciler, l.Reason, ""; l.State == Quarantined {
			who.Actor, who.Note, evidence = ByOperator, l.Hold, l.Evidence // a salvage of the changes has only this one
		}
		now, err := t.move(who, l, *l, evidence)
		if err == nil {
			t.staged.rename(given, nil)
		}
		return now, err
	})
	return err
}
