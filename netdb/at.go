package netdb

import "context"

// BindAt is [Book.Bind] of a reserved lease as the caller saw it, for those who
// are not its owner: if it changed since rev, the answer is [ErrStale]. What the
// owner said in between is worth more.
func (b *Book) BindAt(ctx context.Context, who Who, id string, rev int64, n Binding) (*Lease, error) {
	if err := n.Check(); err != nil {
		return nil, err
	}
	return b.stepAt(ctx, who, id, rev, Reserved, func(l *Lease) {
		l.State = Bound
		l.Containers, l.Netns, l.HostInterface, l.MAC = n.Containers, n.Netns, n.HostInterface, n.MAC
	})
}

// PauseAt is [Book.Pause] of a bound lease, if its row is still at rev.
func (b *Book) PauseAt(ctx context.Context, who Who, id string, rev int64) (*Lease, error) {
	return b.stepAt(ctx, who, id, rev, Bound, func(l *Lease) { l.State = Paused })
}

// ResumeAt is [Book.Resume] of a paused lease, if its row is still at rev.
func (b *Book) ResumeAt(ctx context.Context, who Who, id string, rev int64) (*Lease, error) {
	return b.stepAt(ctx, who, id, rev, Paused, func(l *Lease) { l.State = Bound })
}

// stepAt changes an open lease that is in a state. That state is checked
// beside the table of moves, which lets the reconciler make a cooling address
// bound: by adopting it, not by resuming what has ended.
func (b *Book) stepAt(ctx context.Context, who Who, id string, rev int64, from State, step func(*Lease)) (*Lease, error) {
	return b.updateLease(ctx, id, func(t *tx, l *Lease) (*Lease, error) {
		now := *l
		step(&now)
		if err := atRev(l, rev, now.State, from); err != nil {
			return nil, err
		}
		return t.move(who, l, now, nil)
	})
}
