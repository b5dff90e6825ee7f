package binding

import (
	"context"

	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/netdb"
)

// Withdraws ends the rules of a lease before its address cools; *enforce.Keeper does.
type Withdraws interface {
	Withdraw(ctx context.Context, id string, revision int64) error
	Restore(id string)
}

// Cooling is the book as the watchdog writes it: an address cools once no rule allows it.
type Cooling struct {
	*netdb.Book
	Rules Withdraws
}

// Confirm is [netdb.Book.Confirm], behind the end of the lease's rules.
func (b Cooling) Confirm(ctx context.Context, who ipam.Who, id string, rev int64, unseen func() error) (*ipam.Lease, error) {
	if err := b.Rules.Withdraw(ctx, id, rev); err != nil {
		b.Rules.Restore(id)
		return nil, err
	}
	l, err := b.Book.Confirm(ctx, who, id, rev, unseen)
	if err != nil {
		b.Rules.Restore(id)
	}
	return l, err
}
