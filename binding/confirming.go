package binding

import (
	"context"

	"github.com/ipamd/ipamd/ipam"
	"github.com/ipamd/ipamd/netdb"
)

// RuleWithdrawer removes the rules of a lease from the kernel before its address cools, and makes
// them again where it does not cool after all; *enforce.Keeper is one.
type RuleWithdrawer interface {
	Withdraw(ctx context.Context, id string, revision int64) error
	Restore(id string)
}

// ConfirmingBook is the book as the watchdog writes to it: no rule allows an address any more by
// the time that it cools.
type ConfirmingBook struct {
	*netdb.Book
	Rules RuleWithdrawer
}

// Confirm removes the lease's rules, and then is [netdb.Book.Confirm].
func (b ConfirmingBook) Confirm(ctx context.Context, who ipam.Who, id string, rev int64, unseen func() error) (*ipam.Lease, error) {
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
